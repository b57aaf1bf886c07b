#include "attention/row_chunk.h"

#include <algorithm>

namespace kvarto {
namespace {

class Locator {
 public:
  Locator(const CacheView& view, const SequenceView& sequence)
      : rows_per_block_(view.rows_per_block), sequence_(sequence) {}

  [[nodiscard]] std::uint64_t block_of(std::uint64_t position) const {
    return sequence_.block_table[position / rows_per_block_ - sequence_.first_block];
  }

  // Offsets of `count` units of `unit_rows` rows (a divisor of the block, or 1)
  // from `position` on.
  void fill(const StreamView& stream, std::uint64_t position, std::uint32_t unit_rows,
            std::uint32_t count, std::array<std::uint64_t, kChunkRows>& offsets) const {
    std::uint32_t i = 0;
    while (i < count) {
      const std::uint64_t unit = position % rows_per_block_ / unit_rows;
      const std::uint64_t units_left = rows_per_block_ / unit_rows - unit;
      std::uint64_t offset =
          block_of(position) * stream.block_stride_bytes + unit * stream.layout.row_stride_bytes;
      const auto end = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, i + units_left));
      for (; i < end; ++i, offset += stream.layout.row_stride_bytes) {
        offsets[i] = offset;
        position += unit_rows;
      }
    }
    std::fill(offsets.begin() + count, offsets.end(), offsets[count - 1]);
  }

 private:
  std::uint64_t rows_per_block_;
  const SequenceView& sequence_;
};

}  // namespace

std::uint64_t fill_chunk(const CacheView& view, const SequenceView& sequence, RowRange rows,
                         RowChunk& chunk) {
  const bool is_tiled = view.k.layout.order == RowOrder::kHeadTiles;
  const std::uint64_t begin = is_tiled ? rows.first / kKeyTileRows * kKeyTileRows : rows.first;
  const std::uint64_t end = std::min(rows.end, (begin / kChunkRows + 1) * kChunkRows);
  chunk.first_position = begin;
  chunk.first_row = static_cast<std::uint32_t>(rows.first - begin);
  chunk.end_row = static_cast<std::uint32_t>(end - begin);
  const std::uint32_t unit_rows = is_tiled ? kKeyTileRows : 1;
  chunk.num_keys = (chunk.end_row + unit_rows - 1) / unit_rows;
  const Locator locator(view, sequence);
  locator.fill(view.k, begin, unit_rows, chunk.num_keys, chunk.k);
  locator.fill(view.v, begin, 1, chunk.end_row, chunk.v);
  return end;
}

}  // namespace kvarto
