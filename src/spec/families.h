// Families: how a model type's configuration keys become layers. One file a family in
// `families/`; this registry is the only place that lists them.

#pragma once

#include <span>
#include <string_view>

#include "kvarto/model_spec.h"
#include "spec/keys.h"

namespace kvarto {

// `keys` is the map that describes the language model (text_config where nested); `root` the whole
// file. Fills everything but `name`.
using FamilyReader = Result<ModelSpec> (*)(const Keys& keys, const Keys& root);

struct Family {
  std::string_view model_type;  // exactly as in the file
  FamilyReader read;
};

// All families, sorted by model type.
[[nodiscard]] std::span<const Family> families();

// Reads a configuration: finds the language model's map (text_config, llm_config,
// language_config, ...), then its family by model_type. An unknown or missing model_type is read
// by its keys alone, with a note naming what was assumed.
[[nodiscard]] Result<ModelSpec> read_model_keys(const Keys& root);

}  // namespace kvarto
