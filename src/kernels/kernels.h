// What a kernel is: plain functions over raw pointers, collected in one table per instruction set.
//
// Attention over a chunk of rows is three calls: `score` (queries x keys), `softmax` and
// `accumulate` (probabilities x values); `combine` joins partial results. Kernels cannot fail,
// allocate nothing and know nothing of blocks: the caller turns block tables into byte offsets.
// This header is included by code compiled with per-file instruction sets, so it has no functions
// and includes nothing that has.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/code_kernels.h"
#include "kernels/index_kernels.h"
#include "kvarto/codec_id.h"

namespace kvarto {

enum class Isa : std::uint8_t { kScalar, kAvx2, kAvx512 };

// Element formats that kernels read directly.
enum class Element : std::uint8_t { kF32, kF16, kBF16 };
inline constexpr int kNumElements = 3;

// Queries that share one pass over the rows: 1, 2, 4 or 8, by index 0..3.
inline constexpr int kNumQueryTiles = 4;
inline constexpr std::uint32_t kMaxQueryTile = 8;

// Rows of one chunk: a multiple of the tile, small enough that the scores of a query group and the
// keys and values of one head (32 KiB at dim 128 in 16 bits) stay near the core.
inline constexpr std::uint32_t kChunkRows = 64;
inline constexpr std::uint32_t kKeyTileRows = 16;  // equals kTileRows of kvarto/layout.h
// Of a row of K or V of one head, fields together: DeepSeek's latent rows have 576 elements.
inline constexpr std::uint32_t kMaxHeadDim = 1024;
// Accumulators and padded queries are rounded up to this many floats: one 512-bit vector.
inline constexpr std::uint32_t kPadFloats = 16;

// scores[g][row] = sum over d of q[g][d] * k[row][d], for the `query tile` queries g.
//   tiles: k + offsets[i] is a tile [dim][16 rows]; row = 16 * i + lane; q is [dim][query tile]
//   rows:  k + offsets[i] is a row [dim]; row = i; q is [query tile][q_stride], zero beyond dim
// All rows of a tile are scored, written or not; the softmax masks those that do not count.
struct ScoreArgs {
  const std::byte* k = nullptr;
  const std::uint64_t* offsets = nullptr;  // bytes; `count` of them
  // Where the rows of the next call lie; prefetched into L2 line by line. Null: no prefetch.
  const std::byte* next_k = nullptr;
  const std::uint64_t* next_offsets = nullptr;
  const float* q = nullptr;  // in half precision each word is a pair of equal 16-bit numbers
  float* scores = nullptr;   // [query tile][kChunkRows]
  std::uint32_t count = 0;   // tiles or rows, at most those of a chunk
  std::uint32_t dim = 0;
  std::uint32_t q_stride = 0;
  // Tiles 2i and 2i + 1 as join_tiles leaves them; both have the offset of the two.
  bool is_joined = false;
};
using ScoreFunction = void (*)(const ScoreArgs&);

// Turns scores (in units of log2) into probabilities relative to a running maximum, in place, for
// rows [first_row, end_row). Scores outside are never used, whatever their bits.
struct SoftmaxArgs {
  float* scores = nullptr;  // [num_queries][kChunkRows]
  std::uint32_t num_queries = 0;
  std::uint32_t first_row = 0;
  std::uint32_t end_row = 0;  // > first_row
  // Visible rows of each query inside [first_row, end_row); null: all. A query may see none.
  const std::uint32_t* query_first = nullptr;
  const std::uint32_t* query_end = nullptr;
  float soft_cap = 0;             // > 0: score = soft_cap * tanh(score / soft_cap), log2 units
  const float* slopes = nullptr;  // ALiBi, log2 units; null: off
  // Position of row 0 of the chunk minus the query's position, per query; used with slopes.
  const float* distances = nullptr;
  float* maximum = nullptr;     // [num_queries], starts at -infinity; running, moves lazily
  float* correction = nullptr;  // [num_queries], out: factor for what was accumulated before
  float* sum = nullptr;         // [num_queries][kPadFloats], running sums; the total is their sum
  // [num_queries], out, kernels in half precision alone: factor of this chunk's probabilities,
  // which are relative to the chunk's own maximum there, so that 16 bits hold them whatever came
  // before.
  float* share = nullptr;
};
using SoftmaxFunction = void (*)(const SoftmaxArgs&);

// acc[g][d] = acc[g][d] * correction[g] + share[g] * sum over rows of p[g][row] * v[row][d], where
// share is 1 but in half precision. Reads exactly the rows [first_row, end_row).
struct AccumulateArgs {
  const std::byte* v = nullptr;
  const std::uint64_t* offsets = nullptr;  // bytes, one per row of the chunk
  const std::byte* next_v = nullptr;       // as in ScoreArgs
  const std::uint64_t* next_offsets = nullptr;
  const float* p = nullptr;  // [query tile][kChunkRows]; in half precision pairs as q of a score
  const float* correction = nullptr;
  const float* share = nullptr;  // as in SoftmaxArgs
  float* acc = nullptr;          // [query tile][acc_stride], acc_stride a multiple of kPadFloats
  std::uint32_t first_row = 0;
  std::uint32_t end_row = 0;
  std::uint32_t dim = 0;
  std::uint32_t acc_stride = 0;
};
using AccumulateFunction = void (*)(const AccumulateArgs&);

// out[d] = sum over parts of weights[i] * parts[i][d], for partial results of one query.
struct CombineArgs {
  const float* const* parts = nullptr;
  const float* weights = nullptr;
  std::uint32_t num_parts = 0;
  std::uint32_t dim = 0;
  float* out = nullptr;
};
using CombineFunction = void (*)(const CombineArgs&);

// Scales queries and brings them into the form that `score` wants. `tile` queries are written;
// those from num_queries on are zero.
struct PackQueriesArgs {
  const float* const* rows = nullptr;  // [num_queries] -> [dim]
  std::uint32_t num_queries = 0;
  std::uint32_t tile = 0;
  std::uint32_t dim = 0;
  std::uint32_t stride = 0;  // of the row form; >= dim
  float scale = 1;
  float* out = nullptr;  // [dim][tile] or [tile][stride]
};
using PackQueriesFunction = void (*)(const PackQueriesArgs&);

// Conversions between stored elements and f32, `count` of them.
using ToF32Function = void (*)(const std::byte* from, float* to, std::size_t count);
using FromF32Function = void (*)(const float* from, std::byte* to, std::size_t count);
// One head of one row, `count` elements, to and from its bytes: the blocks of a ggml format, or all
// elements and then all scales. No alignment is asked for. `count` is whole groups where the codec
// asks for that.
using EncodeFunction = FromF32Function;
using DecodeFunction = ToF32Function;
// Writes one row into a tile [count][16 rows]; `to` is the row's first element.
using FromF32TileFunction = void (*)(const float* from, std::byte* to, std::size_t count);
// Transposes `num_rows` <= 16 f32 rows of `dim` elements into a tile [dim][16]; missing rows are 0.
struct TransposeArgs {
  const float* const* rows = nullptr;
  std::uint32_t num_rows = 0;
  std::uint32_t dim = 0;
  float* tile = nullptr;
};
using TransposeFunction = void (*)(const TransposeArgs&);

// Lays tiles of 16-bit keys side by side in pairs, [pair][dim][32 rows], for several query tiles to
// read: joining them takes an instruction for every key vector, each time it is read. A tile
// without another is joined with itself.
struct JoinTilesArgs {
  const std::byte* k = nullptr;
  const std::uint64_t* offsets = nullptr;  // bytes; `count` of them
  std::uint32_t count = 0;
  std::uint32_t dim = 0;
  std::byte* joined = nullptr;
};
using JoinTilesFunction = void (*)(const JoinTilesArgs&);

// Reference loops for measurements. Both return a number that depends on all their work.
using ReadStreamFunction = float (*)(const std::byte* from, std::size_t size_bytes);
using FmaLoopFunction = float (*)(std::size_t rounds);

struct WideKernels;  // kernels/wide_kernels.h

struct KernelTable {
  Isa isa = Isa::kScalar;
  const char* name = nullptr;
  ScoreFunction score_tiles[kNumElements][kNumQueryTiles] = {};
  ScoreFunction score_rows[kNumElements][kNumQueryTiles] = {};
  AccumulateFunction accumulate[kNumElements][kNumQueryTiles] = {};
  SoftmaxFunction softmax = nullptr;
  CombineFunction combine = nullptr;
  PackQueriesFunction pack_query_tile = nullptr;
  PackQueriesFunction pack_query_rows = nullptr;
  ToF32Function to_f32[kNumElements] = {};
  FromF32Function from_f32[kNumElements] = {};
  FromF32TileFunction from_f32_tile[kNumElements] = {};
  EncodeFunction encode[kNumCodecs] = {};  // by Codec; null: cannot be written
  DecodeFunction decode[kNumCodecs] = {};
  TransposeFunction transpose = nullptr;
  JoinTilesFunction join_tiles = nullptr;  // kernels in half precision alone
  const WideKernels* wide = nullptr;
  CodeKernels codes;
  IndexKernels index;
  ReadStreamFunction read_stream = nullptr;
  FmaLoopFunction fma_loop = nullptr;
  std::uint64_t fma_loop_flop = 0;  // of one round
};

}  // namespace kvarto
