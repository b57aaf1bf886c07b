// Streams in tiles of integer codes: scored and accumulated in integers, or filled into f32.

#pragma once

#include <cstddef>

#include "attention/head_pass.h"

namespace kvarto {

// How `stream` lies, or nothing where it is not in tiles of codes.
[[nodiscard]] CodeStream code_stream_of(const StreamView& stream, std::uint32_t rows_per_block);

// Where the scales of one head begin in the slice of block 0.
[[nodiscard]] const std::byte* scales_of(const StreamView& stream, const CodeStream& codes,
                                         std::uint32_t head);

[[nodiscard]] inline ChunkPlaces chunk_places(const CacheView& view, const PassShape& shape) {
  return {view, shape.k_codes.tile_scale_bytes, shape.v_codes.tile_scale_bytes};
}

// Floats of PassArgs::code_scratch; 0 without tiles of codes.
[[nodiscard]] std::size_t code_scratch_floats(const PassShape& shape, std::uint32_t num_padded);

// As pack_queries(), for integer keys. A packed query takes no more than q_stride words.
void pack_query_codes(const PassShape& shape, const QueryTile& tile,
                      std::span<const float* const> rows, float* out);

// Scores a chunk. Requires: shape.is_integer, and tiles of codes in k.
void score_code_tiles(const PassShape& shape, std::span<const QueryTile> tiles,
                      const PassArgs& args);
// Turns scores into weights and accumulates. Requires: shape.is_integer, and tiles of codes in v.
void accumulate_code_tiles(const PassShape& shape, std::span<const QueryTile> tiles,
                           const PassArgs& args, const SoftmaxArgs& softmax,
                           const HeadState& state);

// One head of the chunk's tiles as f32: keys as tiles [dim][16], one behind the other; values as
// rows of `stride` floats, row 0 of the chunk first. Exact. `scratch`: args.code_scratch.
struct CodeFill {
  const PassShape& shape;
  const RowChunk& chunk;
  const std::byte* codes = nullptr;  // slice of this head
  const std::byte* scales = nullptr;
  float* scratch = nullptr;
  float* out = nullptr;
  std::uint32_t stride = 0;  // values alone
};
void fill_code_keys(const CodeFill& fill);
void fill_code_values(const CodeFill& fill);

}  // namespace kvarto
