// Rows of integer codes in tiles (RowOrder): to and from the bytes that their codec writes for one
// head of one row, its image.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/code_format.h"
#include "kvarto/layout.h"

namespace kvarto {

// One head of one row of a slice in tiles.
struct CodeRow {
  CodeFormat format;
  std::uint32_t width = 0;
  std::byte* tile = nullptr;    // of codes, of this head
  std::byte* scales = nullptr;  // of that tile
  std::uint32_t row = 0;        // inside the tile
  RowOrder order = RowOrder::kHeadTiles;
};

// A stream in tiles of codes.
struct CodeTiles {
  CodeFormat format;
  StreamLayout layout;
  std::uint32_t heads = 0;
  std::uint32_t width = 0;
  std::uint64_t rows_per_block = 0;

  // From the begin of a slice to its scales, those of one head [row / 16][group][row % 16].
  [[nodiscard]] std::uint64_t scales_begin(std::uint32_t head) const {
    return heads * layout.head_stride_bytes + format.scales_bytes(head * rows_per_block);
  }
  [[nodiscard]] CodeRow row_at(std::uint64_t row, std::uint32_t head, std::byte* slice) const;
};

// Copies one row, bit by bit; other rows of the tile keep theirs.
void store_code_row(const CodeRow& to, const std::byte* image);
// Requires: only reads through `from`.
void load_code_row(const CodeRow& from, std::byte* image);

}  // namespace kvarto
