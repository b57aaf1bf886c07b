// Kernels of the lightning indexer: one score a row, from the products of a small key with the
// queries of all index heads.
//
//   score[row] = scale[row] x sum over heads h of weight[h] x max(0, q[h] . k[row])
//
// Heads lie in the lanes of vectors and elements of keys are broadcast: keys stay rows, and what
// follows the products (ReLU, weights, the sum over heads) is done once for a vector of heads.
//
// Data only; included by code compiled with per-file instruction sets, as kernels.h is.

#pragma once

#include <cstddef>
#include <cstdint>

namespace kvarto {

// Heads are padded with zeros to a multiple of this: a 512-bit vector of sums in 32 bits.
inline constexpr std::uint32_t kIndexHeadLanes = 16;
// Rows of one call, at most. Two of a chunk's slabs and the queries of 64 heads of 128 elements
// stay in 48 KiB.
inline constexpr std::uint32_t kIndexRows = 16;

inline constexpr std::uint32_t kMaxIndexDim = 1024;

// Integer keys have at most this magnitude: the largest number of e4m3, 448, in eighths. Then all
// numbers of e4m3 from 1 on are exact, and smaller ones are off by 1/16 at most.
inline constexpr std::int32_t kIndexKeyMax = 448 * 8;

// The largest integer of a query for which the sums of `dim` products are exact in 32 bits.
constexpr std::int32_t index_query_max(std::uint32_t dim) {
  const std::int64_t most = 0x7fffffff / (std::int64_t{kIndexKeyMax} * dim);
  return static_cast<std::int32_t>(most < 0x7fff ? most : 0x7fff);
}

// Queries as kernels want them, `num_heads` rows of `dim` elements; padded heads become zero.
//   f32:    q [dim][padded heads] f32
//   int16:  q [ceil(dim / 2)][padded heads][2] int16, in units of their own for each head, by which
//           the weights are multiplied; a head that is not finite gets the weight NaN
struct PackIndexArgs {
  const float* q = nullptr;        // [num_heads][dim]
  const float* weights = nullptr;  // [num_heads]
  std::uint32_t num_heads = 0;
  std::uint32_t num_padded = 0;
  std::uint32_t dim = 0;
  float* packed = nullptr;
  float* packed_weights = nullptr;  // [num_padded], zero beyond
};
using PackIndexFunction = void (*)(const PackIndexArgs&);

// Rows of e4m3 codes, without scales, as keys; units[row] is what the row's numbers are to be
// multiplied with, NaN where a code is.
//   f32: out [count][dim];  int16: out [count][dim rounded up to even]
struct FillIndexArgs {
  const std::byte* codes = nullptr;
  std::size_t stride_bytes = 0;
  std::uint32_t count = 0;  // at most kIndexRows
  std::uint32_t dim = 0;
  void* out = nullptr;
  float* units = nullptr;
};
using FillIndexFunction = void (*)(const FillIndexArgs&);

// The same of rows of f32, in units of their own: int16 alone.
struct RoundIndexArgs {
  const float* rows = nullptr;  // [count][dim]
  std::uint32_t count = 0;
  std::uint32_t dim = 0;
  std::int16_t* out = nullptr;
  float* units = nullptr;
};
using RoundIndexFunction = void (*)(const RoundIndexArgs&);

struct IndexScoreArgs {
  const float* q = nullptr;  // packed
  const float* weights = nullptr;
  const void* keys = nullptr;       // as filled; kIndexRows rows are read, whatever `count`
  const float* scales = nullptr;    // [count]
  const std::byte* next = nullptr;  // the rows of the next call, prefetched into L2; null: none
  std::size_t next_bytes = 0;
  std::uint32_t count = 0;  // at most kIndexRows
  std::uint32_t dim = 0;
  std::uint32_t num_padded = 0;
  float* scores = nullptr;  // [count]
};
using IndexScoreFunction = void (*)(const IndexScoreArgs&);

// One arithmetic.
struct IndexArithmetic {
  const char* isa = nullptr;
  PackIndexFunction pack = nullptr;
  FillIndexFunction fill_e4m3 = nullptr;
  RoundIndexFunction round = nullptr;  // f32: null
  IndexScoreFunction score = nullptr;
};
struct IndexKernels {
  IndexArithmetic f32;
  IndexArithmetic int16;  // sums of products in integers, exactly
};

}  // namespace kvarto
