// The metadata of a GGUF file as a tree of keys: what the architecture's own keys say.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/gguf.h"
#include "spec/keys.h"

namespace kvarto {

struct GgufModelKeys {
  std::string architecture;      // general.architecture
  Value values;                  // keys "ARCHITECTURE.NAME" under NAME
  std::uint64_t num_tokens = 0;  // entries of tokenizer.ggml.tokens
};

// Copies the keys of the model's architecture; arrays longer than any per-layer list are left out.
// Errors: kCorruptData if general.architecture is missing or no name.
// Allocates at most 64 times the bytes of the header.
[[nodiscard]] Result<GgufModelKeys> read_gguf_keys(const GgufHeader& header,
                                                   std::string_view where);

}  // namespace kvarto
