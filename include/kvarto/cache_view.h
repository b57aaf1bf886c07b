// What attention reads: pointers, strides and block tables. Plain data without functions, made by
// KvCache or by an engine that keeps its own storage.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvarto/codec.h"
#include "kvarto/layout.h"

namespace kvarto {

// How large the elements of a stream are, kept while rows are written
// (CacheOptions::keeps_squares). Arithmetic in 16 bits runs only where it is known and small enough
// (AttentionOptions::arith).
struct SquaresView {
  // [heads][width] of the stream: the largest value that the fading mean square of this element has
  // had, times `weight`; null: not kept. Other threads may write rows meanwhile.
  const float* peaks = nullptr;
  float weight = 0;            // below 1 as long as few rows were written; 0: none yet
  std::uint32_t max_rows = 0;  // a single element is at most sqrt(max_rows x its peak)
};

// One stream of one layer.
//   row r of head h of block b begins at
//     base + b * block_stride_bytes + offset(h, r)          by `layout`
struct StreamView {
  const std::byte* base = nullptr;       // slice of this layer and stream in block 0
  std::uint64_t block_stride_bytes = 0;  // between equal places of consecutive block ids
  StreamLayout layout;
  Codec codec = Codec::kF16;
  std::uint32_t heads = 0;
  std::uint32_t width = 0;  // elements a head
  SquaresView squares = {};
};

// One sequence's rows. Block `i` of the table holds rows
// [(first_block + i) * rows_per_block, ... + rows_per_block).
struct SequenceView {
  std::span<const std::uint32_t> block_table;
  std::uint64_t first_block = 0;  // logical index of block_table[0]; > 0 once a window has moved
  std::uint64_t num_tokens = 0;   // rows [first_block * rows_per_block, num_tokens) are readable
};

// K and V of one layer for a batch of sequences. `v` may be the same stream as `k` (K = V or a
// prefix of K), kept in rows: keys in tiles cannot serve as values. A row that serves as both is
// read once.
struct CacheView {
  StreamView k;
  StreamView v;
  std::uint32_t rows_per_block = 0;
  std::span<const SequenceView> sequences;
  // Rows of two fields: the elements of K behind those of `k`, of V behind those of `v`, in a codec
  // of their own (DeepSeek's 656-byte row: 512 elements of fp8_scaled_128, 64 of bf16). Width 0:
  // none. One head, in rows, with the strides of `k` and `v`.
  StreamView k_tail = {};
  StreamView v_tail = {};
};

}  // namespace kvarto
