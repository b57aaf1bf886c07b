// A GGUF model's metadata as a ModelSpec.

#pragma once

#include <span>
#include <string>
#include <string_view>

#include "formats/gguf.h"
#include "kvarto/model_spec.h"

namespace kvarto {

// Reads the layers from the keys of the first part; tensors of all parts decide which of the
// blocks are drafts, are checked against the keys, and are summed up as the weights.
//   where  the file's name in messages
// Errors: kCorruptData naming key, value and expectation; kUnsupported for models without a cache.
[[nodiscard]] Result<ModelSpec> read_gguf_model(std::span<const GgufHeader* const> parts,
                                                std::string_view where);

// Opens the file and all parts of its model; the name is the file's without part and extension.
[[nodiscard]] Result<ModelSpec> open_gguf_model(const std::string& path);

}  // namespace kvarto
