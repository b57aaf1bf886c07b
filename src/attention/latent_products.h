// The products of latent attention with its up-projections, by the kernels of attention: folding a
// query into W_UK is an accumulation (queries are the weights of its rows), W_UV of an output is a
// score (its rows are the keys), and expanding cached rows is a score of rows against tiles of
// both.

#pragma once

#include <span>

#include "attention/runner_state.h"
#include "kvarto/latent_attention.h"

namespace kvarto {

struct LatentDims {
  std::uint32_t heads = 0;
  std::uint32_t latent = 0;
  std::uint32_t rope = 0;
  std::uint32_t nope = 0;
  std::uint32_t v = 0;
  [[nodiscard]] std::uint32_t row() const { return latent + rope; }  // cached elements
  [[nodiscard]] std::uint32_t key() const { return nope + rope; }    // of an expanded head
};

// Vectors of all heads of some tokens, [num_tokens, heads, width], through one matrix a head.
struct HeadProducts {
  const float* weights = nullptr;
  std::uint64_t num_tokens = 0;
  const float* from = nullptr;
  float* to = nullptr;
};

// [W_UK^T q_nope, q_rope]; from width key to width row.
void fold_queries(RunnerState& state, const LatentDims& dims, const HeadProducts& products);

// W_UV u; from width latent to width v.
void expand_outputs(RunnerState& state, const LatentDims& dims, const HeadProducts& products);

// Rows of one block of expanded keys and values.
inline constexpr std::uint32_t kExpandedRows = kChunkRows;

// Keys and values of some heads for rows of one sequence, in f32:
//   keys [block][head][kExpandedRows][key], values [block][head][kExpandedRows][v]
struct ExpandCall {
  const CacheView* view = nullptr;
  std::uint32_t sequence = 0;
  RowRange rows;  // or places of `selection`; the first block begins at a multiple of its size
  std::span<const std::uint32_t> selection;
  bool is_selected = false;
  const LatentWeights* weights = nullptr;
  std::uint32_t first_head = 0;
  std::uint32_t num_heads = 0;
  float* keys = nullptr;
  float* values = nullptr;
};
void expand_rows(RunnerState& state, const LatentDims& dims, const ExpandCall& call);

}  // namespace kvarto
