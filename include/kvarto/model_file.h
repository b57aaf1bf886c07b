// Opens a model: config.json, a folder holding one, GGUF, safetensors, or a catalogue name.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kvarto/model_spec.h"
#include "kvarto/result.h"

namespace kvarto {

// Reads what a model's cache consists of. Only headers are read.
//   path  a `config.json`, a folder holding one, a `.gguf` (any part of a split file), a
//         `.safetensors` or its index, or a name of the catalogue (or a unique prefix of one).
// Errors: kNotFound (no such file and no such name; the message lists candidates), kIo,
// kCorruptData (names file, key, value found and expectation), kUnsupported.
[[nodiscard]] Result<ModelSpec> open_model(std::string_view path);

// The same from bytes in memory. `name` is used in messages and as the model's name.
// Allocates at most 64 times the size of the text for what it says, and the layers (4,096 at most).
[[nodiscard]] Result<ModelSpec> read_config_json(std::string_view text, std::string_view name);

}  // namespace kvarto
