// Which rows a query reads where an indexer picks them: DeepSeek sparse attention.
//
// Every query scores one small key of each row with a few heads of its own, and the rows of the
// largest scores are read by all heads of the attention. The result is handed to
// AttentionRunner::decode (DecodeCall::selections), in every layer that shares it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvarto/cache_view.h"
#include "kvarto/result.h"

namespace kvarto {

// The arithmetic of index scores.
enum class IndexArith : std::uint8_t {
  kF32,  // products and sums in f32
  // Products and sums in integers, exactly, of queries and keys that are rounded to at most 16
  // bits. A key of fp8 becomes eighths of its scale: exact from 1 on and off by 1/16 at most below,
  // where the largest is above 224. Other keys become 3,584ths of their largest element. Queries
  // become 1/Q of the largest of their head, Q = min(32767, 2^31 / (3584 x dim)): 4,681 at 128. For
  // each head the product is off by at most
  //   sum over d of |q[d]| u/2 + |k[d]| w/2 + u w/4
  // with u and w the units of key and query. Rounding to fp8 itself moves a key by up to 1/16 of
  // every element.
  kInt16,
};
[[nodiscard]] std::string_view index_arith_name(IndexArith arith);

// Selects rows for the queries of a decode step or a prefill.
//
// The score of row s for query t is
//   I(t, s) = sum over index heads h of weights[t, h] x max(0, q[t, h] . k[s]),
// k[s] as the cache stores it, its scale included. Factors of the model (1 / sqrt(index heads),
// 1 / sqrt(index dim), scales of quantised queries) belong into the weights.
//
// A query sees the rows up to its own. It selects the `top_k` with the largest scores, all if
// there are no more. Of equal scores the row of the lower position comes first; -0 equals 0; NaN
// comes after all numbers. So the selection is determined by the scores, and these are the same,
// bit for bit, for every number of threads.
struct SelectCall {
  CacheView view;  // index keys as `k`, of one head; `v` is not looked at
  // The last q_lens[s] tokens of each sequence s are queries; empty: one each (none of a sequence
  // without tokens, whose selection is empty).
  std::span<const std::uint64_t> q_lens;
  std::uint32_t num_index_heads = 0;
  std::span<const float> q;        // [num_queries, num_index_heads, index dim]
  std::span<const float> weights;  // [num_queries, num_index_heads]
  std::uint64_t top_k = 0;         // rows
  IndexArith arith = IndexArith::kF32;
};

// The rows of each query, ascending. Movable; a copy would point into the original.
class Selection {
 public:
  Selection() = default;
  Selection(const Selection&) = delete;
  Selection& operator=(const Selection&) = delete;
  Selection(Selection&&) = default;
  Selection& operator=(Selection&&) = default;

  // One list for each query, in the order of SelectCall::q.
  [[nodiscard]] std::span<const std::span<const std::uint32_t>> queries() const { return queries_; }
  [[nodiscard]] std::uint64_t num_rows() const {
    std::uint64_t sum = 0;
    for (const auto& rows : queries_) sum += rows.size();
    return sum;
  }

  // Makes room for lists of at most capacities[i] rows; they are empty until set.
  void reset(std::span<const std::size_t> capacities);
  // Where the rows of a query go.
  [[nodiscard]] std::span<std::uint32_t> room(std::size_t query);
  void set_size(std::size_t query, std::size_t size);

 private:
  std::vector<std::uint32_t> rows_;
  std::vector<std::size_t> begin_;
  std::vector<std::span<const std::uint32_t>> queries_;
};

// The sequences of a prefill as those of decode steps: for each query token one, which ends with
// it. DecodeCall over these views and the selections of a prefill is its attention.
[[nodiscard]] std::vector<SequenceView> query_views(std::span<const SequenceView> sequences,
                                                    std::span<const std::uint64_t> q_lens);

// What really ran.
struct SelectReport {
  std::string_view isa;    // "scalar", "avx2", "avx512", "avx512vnni"
  std::string_view arith;  // "f32", "int16"
  std::uint64_t num_threads = 0;
  std::uint64_t num_queries = 0;
  std::uint64_t rows_seen = 0;  // index keys, for each query that sees them
  // Read, each reading counted: neighbouring queries of a prefill share a reading.
  std::uint64_t rows_read = 0;
  std::uint64_t bytes_read = 0;  // of those read, scales included
  std::uint64_t rows_selected = 0;
};

}  // namespace kvarto
