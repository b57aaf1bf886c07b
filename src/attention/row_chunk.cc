#include "attention/row_chunk.h"

#include <algorithm>
#include <span>

namespace kvarto {
namespace {

class Locator {
 public:
  Locator(const CacheView& view, const SequenceView& sequence)
      : rows_per_block_(view.rows_per_block), sequence_(sequence) {}

  [[nodiscard]] std::uint64_t block_of(std::uint64_t position) const {
    return sequence_.block_table[position / rows_per_block_ - sequence_.first_block];
  }

  // Units of `rows` rows (a divisor of the block, or 1), `stride_bytes` apart in a block.
  struct Units {
    std::uint64_t block_stride_bytes = 0;
    std::uint64_t stride_bytes = 0;
    std::uint32_t rows = 1;
  };

  // Offsets of `count` units from `position` on; the last one is repeated to the end.
  void fill(const Units& units, std::uint64_t position, std::uint32_t count,
            std::span<std::uint64_t> offsets) const {
    std::uint32_t i = 0;
    while (i < count) {
      const std::uint64_t unit = position % rows_per_block_ / units.rows;
      const std::uint64_t units_left = rows_per_block_ / units.rows - unit;
      std::uint64_t offset =
          block_of(position) * units.block_stride_bytes + unit * units.stride_bytes;
      const auto end = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, i + units_left));
      for (; i < end; ++i, offset += units.stride_bytes) {
        offsets[i] = offset;
        position += units.rows;
      }
    }
    std::fill(offsets.begin() + count, offsets.end(), offsets[count - 1]);
  }

 private:
  std::uint64_t rows_per_block_;
  const SequenceView& sequence_;
};

}  // namespace

std::uint64_t fill_chunk(const ChunkPlaces& places, const SequenceView& sequence, RowRange rows,
                         RowChunk& chunk) {
  const CacheView& view = places.view;
  const bool has_key_tiles = view.k.layout.order == RowOrder::kHeadTiles;
  const bool has_value_tiles = view.v.layout.order == RowOrder::kHeadValueTiles;
  const std::uint64_t begin =
      has_key_tiles || has_value_tiles ? rows.first / kKeyTileRows * kKeyTileRows : rows.first;
  const std::uint64_t end = std::min(rows.end, (begin / kChunkRows + 1) * kChunkRows);
  chunk.first_position = begin;
  chunk.first_row = static_cast<std::uint32_t>(rows.first - begin);
  chunk.end_row = static_cast<std::uint32_t>(end - begin);
  const std::uint32_t num_tiles = (chunk.end_row + kKeyTileRows - 1) / kKeyTileRows;
  chunk.num_keys = has_key_tiles ? num_tiles : chunk.end_row;
  const Locator locator(view, sequence);
  const auto units_of = [](const StreamView& stream, bool is_tiled) {
    return Locator::Units{stream.block_stride_bytes, stream.layout.row_stride_bytes,
                          is_tiled ? kKeyTileRows : 1};
  };
  // Of tiles, no more than a chunk has are ever looked at.
  const auto places_of = [](std::array<std::uint64_t, kChunkRows>& offsets, bool is_tiled) {
    return std::span(offsets).first(is_tiled ? kChunkRows / kKeyTileRows : kChunkRows);
  };
  locator.fill(units_of(view.k, has_key_tiles), begin, chunk.num_keys,
               places_of(chunk.k, has_key_tiles));
  locator.fill(units_of(view.v, has_value_tiles), begin,
               has_value_tiles ? num_tiles : chunk.end_row, places_of(chunk.v, has_value_tiles));
  if (places.k_tile_scale_bytes != 0) {
    locator.fill({view.k.block_stride_bytes, places.k_tile_scale_bytes, kKeyTileRows}, begin,
                 num_tiles, chunk.k_scales);
  }
  if (places.v_tile_scale_bytes != 0) {
    locator.fill({view.v.block_stride_bytes, places.v_tile_scale_bytes, kKeyTileRows}, begin,
                 num_tiles, chunk.v_scales);
  }
  return end;
}

std::uint64_t fill_chunk(const CacheView& view, const SequenceView& sequence,
                         std::span<const std::uint32_t> positions, RowRange rows, RowChunk& chunk) {
  const std::uint64_t end = std::min(rows.end, (rows.first / kChunkRows + 1) * kChunkRows);
  const auto count = static_cast<std::uint32_t>(end - rows.first);
  chunk.first_position = rows.first;
  chunk.first_row = 0;
  chunk.end_row = count;
  chunk.num_keys = count;
  const Locator locator(view, sequence);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t position = positions[rows.first + i];
    const std::uint64_t block = locator.block_of(position);
    const std::uint64_t row = position % view.rows_per_block;
    chunk.k[i] = block * view.k.block_stride_bytes + row * view.k.layout.row_stride_bytes;
    chunk.v[i] = block * view.v.block_stride_bytes + row * view.v.layout.row_stride_bytes;
  }
  // Prefetches run over all entries.
  std::fill(chunk.k.begin() + count, chunk.k.end(), chunk.k[count - 1]);
  std::fill(chunk.v.begin() + count, chunk.v.end(), chunk.v[count - 1]);
  return end;
}

}  // namespace kvarto
