#include "cache/code_tiles.h"

#include <algorithm>
#include <array>
#include <cstring>
namespace kvarto {
namespace {

constexpr std::uint32_t kLineBytes = 64;  // four bytes of each row, or of each element
constexpr std::uint32_t kQuad = 4;        // codes of one 32-bit word

using Codes = std::array<std::uint8_t, kMaxCodeWidth>;  // without sign

// Where the image of a head has the codes and the scale of a group.
struct ImageGroup {
  std::size_t codes = 0;
  std::size_t scale = 0;
  std::uint32_t first = 0;  // element
  std::uint32_t count = 0;
};

ImageGroup group_of(const CodeFormat& format, std::uint32_t width, std::uint32_t group) {
  ImageGroup found;
  found.first = group * format.group_elements;
  found.count = std::min(format.group_elements, width - found.first);
  found.codes = std::size_t{found.first} * format.bits / 8;
  found.scale = std::size_t{width} * format.bits / 8 + group * format.scale_bytes;
  if (format.has_scale_first) {
    found.scale = found.codes + group * format.scale_bytes;
    found.codes = found.scale + format.scale_bytes;
  }
  return found;
}

// The byte and the shift of code `i` of a group of 4-bit codes.
struct NibblePlace {
  std::uint32_t byte = 0;
  std::uint32_t shift = 0;
};
NibblePlace nibble_of(const CodeFormat& format, std::uint32_t i) {
  const std::uint32_t half = format.group_elements / 2;
  if (format.is_split_in_halves) return {i % half, i / half * 4};
  return {i / 2, i % 2 * 4};
}

// Signed codes become codes with their zero point, and back.
constexpr std::uint8_t kSignBit = 0x80;

void read_codes(const CodeFormat& format, const ImageGroup& group, const std::byte* image,
                Codes& codes) {
  for (std::uint32_t i = 0; i < group.count; ++i) {
    if (format.bits == 8) {
      codes[group.first + i] =
          static_cast<std::uint8_t>(static_cast<std::uint8_t>(image[group.codes + i]) ^ kSignBit);
    } else {
      const NibblePlace place = nibble_of(format, i);
      codes[group.first + i] = static_cast<std::uint8_t>(
          (static_cast<std::uint32_t>(image[group.codes + place.byte]) >> place.shift) & 15u);
    }
  }
}

void write_codes(const CodeFormat& format, const ImageGroup& group, const Codes& codes,
                 std::byte* image) {
  if (format.bits == 4) std::memset(image + group.codes, 0, group.count / 2);
  for (std::uint32_t i = 0; i < group.count; ++i) {
    const std::uint8_t code = codes[group.first + i];
    if (format.bits == 8) {
      image[group.codes + i] = static_cast<std::byte>(code ^ kSignBit);
    } else {
      const NibblePlace place = nibble_of(format, i);
      image[group.codes + place.byte] |= static_cast<std::byte>(code << place.shift);
    }
  }
}

// Four codes of a row lie side by side in a tile of keys; of 4 bits, eight do.
void store_keys(const CodeRow& to, const Codes& codes) {
  std::byte* word = to.tile + std::size_t{to.row} * kQuad;
  const std::uint32_t step = kQuad * 8 / to.format.bits;
  for (std::uint32_t d = 0; d < to.width; d += step, word += kLineBytes) {
    for (std::uint32_t j = 0; j < kQuad; ++j) {
      const std::uint32_t high = to.format.bits == 8 ? 0u : codes[d + kQuad + j] * 16u;
      word[j] = static_cast<std::byte>(codes[d + j] | high);
    }
  }
}

void load_keys(const CodeRow& from, Codes& codes) {
  const std::byte* word = from.tile + std::size_t{from.row} * kQuad;
  const std::uint32_t step = kQuad * 8 / from.format.bits;
  for (std::uint32_t d = 0; d < from.width; d += step, word += kLineBytes) {
    for (std::uint32_t j = 0; j < kQuad; ++j) {
      const auto byte = static_cast<std::uint8_t>(word[j]);
      codes[d + j] = from.format.bits == 8 ? byte : byte & 15u;
      if (from.format.bits == 4) codes[d + kQuad + j] = static_cast<std::uint8_t>(byte >> 4);
    }
  }
}

// Codes of four rows lie side by side in a tile of values; of 4 bits, those of eight. The first
// element of a column of 16 elements:
std::byte* value_column(const CodeRow& row, std::uint32_t column) {
  const std::uint32_t rows_a_line = kQuad * 8 / row.format.bits;
  const std::uint32_t lines = kTileRows / rows_a_line;
  return row.tile + (std::size_t{column} * lines + row.row / rows_a_line) * kLineBytes +
         row.row % kQuad;
}

void store_values(const CodeRow& to, const Codes& codes) {
  const std::uint32_t shift = to.row / kQuad % 2 * 4;
  const std::uint32_t kept = 0xf0u >> shift;  // of 4 bits: the other row's half
  for (std::uint32_t first = 0; first < to.width; first += kCodeColumn) {
    std::byte* column = value_column(to, first / kCodeColumn);
    for (std::uint32_t i = 0; i < kCodeColumn; ++i) {
      const std::uint32_t code = codes[first + i];
      std::byte& byte = column[i * kQuad];
      byte = static_cast<std::byte>(
          to.format.bits == 8 ? code : (static_cast<std::uint32_t>(byte) & kept) | code << shift);
    }
  }
}

void load_values(const CodeRow& from, Codes& codes) {
  const std::uint32_t shift = from.row / kQuad % 2 * 4;
  for (std::uint32_t first = 0; first < from.width; first += kCodeColumn) {
    const std::byte* column = value_column(from, first / kCodeColumn);
    for (std::uint32_t i = 0; i < kCodeColumn; ++i) {
      const auto byte = static_cast<std::uint32_t>(column[i * kQuad]);
      codes[first + i] =
          static_cast<std::uint8_t>(from.format.bits == 8 ? byte : (byte >> shift) & 15u);
    }
  }
}

std::byte* scale_place(const CodeRow& row, std::uint32_t group) {
  return row.scales + (std::size_t{group} * kTileRows + row.row) * row.format.scale_bytes;
}

}  // namespace

CodeRow CodeTiles::row_at(std::uint64_t row, std::uint32_t head, std::byte* slice) const {
  const std::uint64_t tile = row / kTileRows;
  return {.format = format,
          .width = width,
          .tile = slice + head * layout.head_stride_bytes + tile * layout.row_stride_bytes,
          .scales = slice + scales_begin(head) + format.scales_bytes(tile * kTileRows),
          .row = static_cast<std::uint32_t>(row % kTileRows),
          .order = layout.order};
}

void store_code_row(const CodeRow& to, const std::byte* image) {
  Codes codes;
  for (std::uint32_t group = 0; group < to.format.num_groups; ++group) {
    const ImageGroup place = group_of(to.format, to.width, group);
    read_codes(to.format, place, image, codes);
    std::memcpy(scale_place(to, group), image + place.scale, to.format.scale_bytes);
  }
  to.order == RowOrder::kHeadTiles ? store_keys(to, codes) : store_values(to, codes);
}

void load_code_row(const CodeRow& from, std::byte* image) {
  Codes codes;
  from.order == RowOrder::kHeadTiles ? load_keys(from, codes) : load_values(from, codes);
  for (std::uint32_t group = 0; group < from.format.num_groups; ++group) {
    const ImageGroup place = group_of(from.format, from.width, group);
    write_codes(from.format, place, codes, image);
    std::memcpy(image + place.scale, scale_place(from, group), from.format.scale_bytes);
  }
}

}  // namespace kvarto
