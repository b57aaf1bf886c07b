// Small pieces that several architectures share: fields with a native codec, and latent rows.

#pragma once

#include <string>
#include <utility>

#include "spec/architectures.h"

namespace kvarto {

// A field whose release format is `native`, which is in force until with_types().
[[nodiscard]] inline Field native_field(std::string name, std::uint32_t heads, std::uint32_t width,
                                        CodecRole role, Codec native) {
  return {.name = std::move(name),
          .heads = heads,
          .width = width,
          .role = role,
          .native = native,
          .packed = native,
          .codec = native};
}

[[nodiscard]] inline Field fixed_field(std::string name, std::uint32_t heads, std::uint32_t width,
                                       Codec codec) {
  return native_field(std::move(name), heads, width, CodecRole::kFixed, codec);
}

// A summary of keys that keeps their type where that is one of 16 or 32 bits, else bf16: a
// quantised bound would no longer bound.
[[nodiscard]] inline Field summary_field(std::string name, std::uint32_t heads,
                                         std::uint32_t width) {
  Field field = fixed_field(std::move(name), heads, width, Codec::kBF16);
  field.follows_wide_key = true;
  return field;
}

[[nodiscard]] inline Access top_k(std::uint64_t rows) {
  return {.kind = Access::Kind::kTopK, .count = rows};
}
[[nodiscard]] inline Access whole_blocks(std::uint64_t rows) {
  return {.kind = Access::Kind::kBlocks, .count = rows};
}
[[nodiscard]] inline Access not_read() { return {.kind = Access::Kind::kNone}; }

// Index keys of `dim` elements for all heads, one every `tokens_per_row` tokens, all scored in
// every step. The scales of a block follow its rows (FlashMLA and SGLang index buffers).
[[nodiscard]] Stream index_key_stream(std::uint32_t dim, std::uint64_t tokens_per_row,
                                      Codec native);

}  // namespace kvarto
