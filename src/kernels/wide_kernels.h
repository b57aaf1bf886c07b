// Many queries (16 to 128) against one chunk of rows: small matrix products over rows that are
// brought into the compute format once and then used by all queries.
//
// A chunk of at most kChunkRows rows takes these steps, all with one WideKernels:
//   once   pack_queries   rows of f32 -> blocks of kWideQueries queries; the last is padded with 0
//   chunk  fill_key_tiles or fill_key_rows, by what the cache stores   -> tiles of keys
//          fill_values    -> rows of values; rows that are in the compute format already, and
//                         readable up to a multiple of kWideElements elements, need no copy
//          score          all blocks x all tiles -> f32 scores, [query][kChunkRows]
//          softmax        SoftmaxArgs with num_queries = all queries of the blocks
//          accumulate     all blocks x all rows
// Where keys and values are the same rows (a latent stream) there are no tiles: pack_row_queries
// and score_rows take the place of pack_queries and score, over rows in place or in one copy.
// Formats that are no Element are decoded into rows of f32 first, which the fills then read.
// Blocks and tiles lie one after the other: pointers that begin at a later block, or fewer tiles,
// leave out what no query sees.
//
// Data only; included by code compiled with per-file instruction sets, as kernels.h is.

#pragma once

#include "kernels/kernels.h"

namespace kvarto {

inline constexpr std::uint32_t kWideQueries = 8;
// Values and accumulators are processed in units of so many elements.
inline constexpr std::uint32_t kWideElements = 32;

// Rows that the next chunk reads, brought into L2 line by line on the way.
struct WidePrefetch {
  const std::byte* base = nullptr;         // null: no prefetch
  const std::uint64_t* offsets = nullptr;  // bytes, `num_rows` of them
  std::uint32_t num_rows = 0;
  std::uint32_t row_bytes = 0;
};

struct WidePackArgs {
  const float* const* rows = nullptr;  // [num_queries] -> [dim]
  std::uint32_t num_queries = 0;
  std::uint32_t dim = 0;
  float scale = 1;
  float* out =
      nullptr;  // [blocks][dim][kWideQueries] words; in f16 each is a pair of equal numbers
};
using WidePackFunction = void (*)(const WidePackArgs&);

// Keys into tiles [dim][tile rows] of the compute format.
//   fill_key_tiles: from + offsets[i] is a tile [dim][16 rows]
//   fill_key_rows:  from + offsets[i] is a row [dim]
// Rows of the last tile beyond `count` may become anything.
struct WideKeysArgs {
  const std::byte* from = nullptr;
  const std::uint64_t* offsets = nullptr;  // bytes; `count` of them
  std::uint32_t count = 0;                 // tiles or rows, at most those of a chunk
  std::uint32_t dim = 0;
  std::byte* to = nullptr;
};
using WideKeysFunction = void (*)(const WideKeysArgs&);

// Rows [first_row, end_row) into rows of the compute format, with zeros behind `dim` up to
// `stride`.
struct WideValuesArgs {
  const std::byte* from = nullptr;
  const std::uint64_t* offsets = nullptr;  // bytes, one for each row of the chunk
  std::uint32_t first_row = 0;
  std::uint32_t end_row = 0;
  std::uint32_t dim = 0;
  std::uint32_t stride = 0;  // elements; a multiple of kWideElements
  std::byte* to = nullptr;   // of row 0
};
using WideValuesFunction = void (*)(const WideValuesArgs&);

// scores[g][row] = sum over d of q[g][d] * k[row][d].
struct WideScoreArgs {
  const std::byte* keys = nullptr;  // [num_tiles] tiles
  const float* q = nullptr;         // [num_blocks], packed
  float* scores = nullptr;          // [num_blocks x kWideQueries][kChunkRows], of the first tile
  std::uint32_t num_blocks = 0;
  std::uint32_t num_tiles = 0;
  std::uint32_t dim = 0;
  WidePrefetch next;
};
using WideScoreFunction = void (*)(const WideScoreArgs&);

// acc[g][d] = acc[g][d] * correction[g] + share[g] * sum over rows of p[g][row] * v[row][d], where
// share is 1 but in half precision. Reads exactly the rows [first_row, end_row), up to `dim`
// rounded up to kWideElements; accumulators beyond `dim` become anything.
struct WideAccumulateArgs {
  const std::byte* v = nullptr;            // compute format
  const std::uint64_t* offsets = nullptr;  // bytes, one for each row of the chunk
  const float* p = nullptr;                // as the softmax leaves it
  const float* correction = nullptr;
  const float* share = nullptr;
  float* acc = nullptr;  // [num_blocks x kWideQueries][acc_stride]
  std::uint32_t num_blocks = 0;
  std::uint32_t first_row = 0;
  std::uint32_t end_row = 0;
  std::uint32_t dim = 0;
  std::uint32_t acc_stride = 0;  // floats; a multiple of kWideElements
  WidePrefetch next;
};
using WideAccumulateFunction = void (*)(const WideAccumulateArgs&);

// Queries side by side, for score_rows.
struct WideRowPackArgs {
  const float* const* rows = nullptr;  // [num_queries] -> [dim]
  std::uint32_t num_queries = 0;
  std::uint32_t dim = 0;
  std::uint32_t stride = 0;  // elements, a multiple of kWideElements; zeros behind `dim`
  float scale = 1;
  float* out = nullptr;  // [blocks x kWideQueries][stride] of the compute format
};
using WideRowPackFunction = void (*)(const WideRowPackArgs&);

// scores[g][row] = sum over d of q[g][d] * k[row][d] for the rows [first_row, end_row), which lie
// side by side in the compute format. Scores up to three rows before and after may become anything.
// Reads exactly the rows asked for, up to `dim`.
struct WideRowScoreArgs {
  const std::byte* rows = nullptr;
  const std::uint64_t* offsets = nullptr;  // bytes, one for each row of the chunk
  std::uint32_t first_row = 0;
  std::uint32_t end_row = 0;
  const float* q = nullptr;    // packed
  std::uint32_t q_stride = 0;  // elements
  std::uint32_t dim = 0;
  float* scores = nullptr;  // [num_blocks x kWideQueries][kChunkRows]
  std::uint32_t num_blocks = 0;
  WidePrefetch next;
};
using WideRowScoreFunction = void (*)(const WideRowScoreArgs&);

// Sum over d of weights[d] * q[d]^2.
using WeightedSquareFunction = float (*)(const float* weights, const float* q, std::uint32_t dim);

// One compute format: f32 of every instruction set, f16 with AVX512-FP16.
struct WideKernels {
  std::uint32_t element_bytes = 0;  // of the compute format
  std::uint32_t tile_rows = 0;      // of a tile of keys
  WidePackFunction pack_queries = nullptr;
  WideKeysFunction fill_key_tiles[kNumElements] = {};
  WideKeysFunction fill_key_rows[kNumElements] = {};
  WideValuesFunction fill_values[kNumElements] = {};
  WideScoreFunction score = nullptr;
  WideRowPackFunction pack_row_queries = nullptr;
  WideRowScoreFunction score_rows = nullptr;
  SoftmaxFunction softmax = nullptr;
  WideAccumulateFunction accumulate = nullptr;
  WeightedSquareFunction weighted_square = nullptr;
};

}  // namespace kvarto
