// Codecs of integer codes, as data: what tiles and integer arithmetic need to know of them.

#pragma once

#include <cstdint>
#include <optional>

#include "base/checked.h"
#include "kvarto/codec.h"

namespace kvarto {

// One head of `width` elements. The value of an element is (code - zero_point) * scale of its
// group, with codes stored without sign.
struct CodeFormat {
  std::uint32_t bits = 8;  // of a code: 8 or 4
  std::int32_t zero_point = 128;
  std::uint32_t group_elements = 0;
  std::uint32_t num_groups = 0;
  std::uint32_t scale_bytes = 4;  // 4: f32, 2: f16
  bool has_scale_first = false;  // as encoded: scale before the codes of its group, else behind all
  bool is_split_in_halves =
      false;  // as encoded: 4-bit codes i and i + 16 share a byte, else 2i, 2i + 1

  [[nodiscard]] constexpr bool is_f16() const { return scale_bytes == 2; }
  // Bytes of a tile of `rows` rows.
  [[nodiscard]] constexpr std::uint64_t scales_bytes(std::uint64_t rows) const {
    return rows * num_groups * scale_bytes;
  }
};

// Elements of a head must be whole vectors of the tiles.
inline constexpr std::uint32_t kCodeColumn = 16;
// Sums of as many products of a code and a query of 16 bits fit into 32.
inline constexpr std::uint32_t kMaxCodeWidth = 512;

// Nothing for codecs that are not integer codes, and for widths that tiles do not hold.
[[nodiscard]] constexpr std::optional<CodeFormat> code_format(Codec codec, std::uint32_t width) {
  if (width == 0 || width > kMaxCodeWidth || width % kCodeColumn != 0) return std::nullopt;
  CodeFormat format;
  switch (codec) {
    case Codec::kInt8:
      format.group_elements = width;
      break;
    case Codec::kInt4:
      format.bits = 4;
      format.group_elements = width < 128 ? width : 128;
      break;
    case Codec::kQ8_0:
    case Codec::kQ4_0:
      if (width % 32 != 0) return std::nullopt;
      format.bits = codec == Codec::kQ8_0 ? 8 : 4;
      format.group_elements = 32;
      format.scale_bytes = 2;
      format.has_scale_first = true;
      format.is_split_in_halves = codec == Codec::kQ4_0;
      break;
    default:
      return std::nullopt;
  }
  if (format.bits == 4) format.zero_point = 8;
  format.num_groups = static_cast<std::uint32_t>(ceil_div(width, format.group_elements));
  return format;
}

}  // namespace kvarto
