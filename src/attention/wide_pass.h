// One chunk of rows against many queries of one KV head, in f32 or f16: the rows are brought into
// the compute format once, then scored, weighed and accumulated for all queries.

#pragma once

#include "attention/head_pass.h"
#include "attention/runner_state.h"
#include "kernels/wide_kernels.h"

namespace kvarto {

// What is the same for every chunk of one call.
struct WideShape {
  explicit WideShape(const PassShape& pass_shape);

  PassShape pass;  // acc_stride in whole units of the kernels
  const WideKernels* kernels = nullptr;
  bool reads_values_in_place = false;
  std::uint32_t value_stride = 0;  // elements of a filled row
};

// Makes room for `num_padded` queries where running out of memory can be reported.
void reserve_wide(const WideShape& shape, std::uint32_t num_padded, ThreadScratch& scratch);

// Rows of one head as they are stored.
struct StoredRows {
  const RowChunk* chunk = nullptr;
  const std::byte* k = nullptr;  // slice of this head
  const std::byte* v = nullptr;
  const std::byte* k_scales = nullptr;  // where codes are tiled
  const std::byte* v_scales = nullptr;
};
// Rows of one head in the compute format.
struct WideRows {
  const RowChunk* chunk = nullptr;  // which rows count
  const std::byte* keys = nullptr;  // tiles
  const std::byte* v = nullptr;
  const std::uint64_t* v_offsets = nullptr;
};
// Uses keys, values, key_rows, codes and slab_chunk of `scratch`.
[[nodiscard]] WideRows fill_wide(const WideShape& shape, const StoredRows& rows,
                                 ThreadScratch& scratch);

struct WidePassArgs {
  WideRows rows;
  std::uint32_t num_padded = 0;                // whole blocks of queries
  const float* q = nullptr;                    // packed
  float* scores = nullptr;                     // [num_padded][kChunkRows]
  const float* slopes = nullptr;               // as in SoftmaxArgs
  const float* distances = nullptr;            // likewise
  const std::uint32_t* query_first = nullptr;  // likewise
  const std::uint32_t* query_end = nullptr;
  WidePrefetch soon[2];  // what is needed after this pass
};
// Blocks of queries meet only the tiles of rows that one of them sees.
void run_wide_pass(const WideShape& shape, const WidePassArgs& args, const HeadState& state);

}  // namespace kvarto
