// From block tables to byte offsets: the rows of one chunk, as kernels want
// them.

#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "attention/read_plan.h"
#include "kernels/kernels.h"
#include "kvarto/cache_view.h"

namespace kvarto {

// Up to kChunkRows consecutive rows of one sequence. Row 0 of the chunk is
// `first_position`; rows [first_row, end_row) count, the others only fill the
// tile that they share.
struct RowChunk {
  std::uint64_t first_position = 0;
  std::uint32_t first_row = 0;
  std::uint32_t end_row = 0;
  std::uint32_t num_keys = 0;  // entries of k that are scored: tiles or rows
  // Bytes from the slice of block 0 to the tile or row, head 0; values in tiles have as many
  // entries as keys in tiles. Entries past
  // the last one repeat it, so that a prefetch may run over all of them.
  std::array<std::uint64_t, kChunkRows> k;
  std::array<std::uint64_t, kChunkRows> v;
  // Streams in tiles of codes: from the first scale of block 0, head 0, to those of the tile.
  std::array<std::uint64_t, kChunkRows / kKeyTileRows> k_scales;
  std::array<std::uint64_t, kChunkRows / kKeyTileRows> v_scales;
};

// What tells a chunk where rows lie. Views, not owned.
struct ChunkPlaces {
  const CacheView& view;
  std::uint64_t k_tile_scale_bytes = 0;  // 0: no tiles of codes
  std::uint64_t v_tile_scale_bytes = 0;
};

// Fills `chunk` with the rows of `rows` from rows.first on, as many as fit; a
// chunk ends at a multiple of kChunkRows. Returns the position after its last
// row. Requires: rows is not empty and resident in `sequence`.
std::uint64_t fill_chunk(const ChunkPlaces& places, const SequenceView& sequence, RowRange rows,
                         RowChunk& chunk);

// The same for rows picked one by one: positions[rows.first] and those after it. Requires: K and V
// in rows; all positions resident.
std::uint64_t fill_chunk(const CacheView& view, const SequenceView& sequence,
                         std::span<const std::uint32_t> positions, RowRange rows, RowChunk& chunk);

}  // namespace kvarto
