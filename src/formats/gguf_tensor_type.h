// Numbers of tensor types in GGUF files.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kvarto/tensor_file.h"

namespace kvarto {

// nullopt for a number that no current format has.
[[nodiscard]] std::optional<TensorType> gguf_tensor_type(std::uint32_t id);

// The name of a type that older files may carry but that ggml has removed; nullopt otherwise.
[[nodiscard]] std::optional<std::string_view> gguf_removed_type(std::uint32_t id);

}  // namespace kvarto
