// Cache types of some layers alone, and which types a command can write.

#pragma once

#include <string>
#include <vector>

#include "kvarto/layer_types.h"
#include "kvarto/result.h"

namespace kvarto::cli {

// Words of --kv-types-by-layer: "0-3=f16", "7=q8_0/q4_0" (K and V), in this order. `index` is the
// type of index keys everywhere. Errors: kInvalidArgument.
[[nodiscard]] Result<std::vector<LayerTypes>> parse_layer_types(
    const std::vector<std::string>& words, const std::string& index);

// The types for a help text: "one of auto f32 ...".
enum class TypeUse : unsigned char {
  kPlanned,  // all
  kWritten,  // those that rows can be written in
  kHeads,    // of these, those of K and V apart
};
[[nodiscard]] std::string type_names(TypeUse use);

}  // namespace kvarto::cli
