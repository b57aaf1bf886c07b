// A cache of random contents for measurements, and what it should give.

#pragma once

#include <optional>
#include <random>
#include <vector>

#include "cache/element_squares.h"
#include "cache/slice.h"
#include "cache/storage.h"
#include "kernels/kernels.h"
#include "kvarto/attention.h"
#include "kvarto/measure.h"
#include "profile/error_bound.h"

namespace kvarto {

// Not thread-safe; one owner. The view points into the object: it must not move while in use.
class BenchCache {
 public:
  // Errors: as measure_decode.
  [[nodiscard]] static Result<BenchCache> create(const AttentionBench& bench,
                                                 const KernelTable& kernels);

  [[nodiscard]] CacheView view() const;
  [[nodiscard]] const Storage& storage() const { return storage_; }
  [[nodiscard]] std::span<const float> queries() const { return queries_; }
  // Tokens of each sequence.
  [[nodiscard]] std::span<const std::uint64_t> lengths() const { return lengths_; }

  // Bytes of one row of K and V, all heads.
  [[nodiscard]] std::uint64_t row_bytes() const;

  // What query head `q_head` of query token `token` (counted over all sequences) gets, in double
  // precision, at the default scale or `scale`.
  struct ExactHead {
    std::vector<double> out;
    HeadMagnitudes magnitudes;
  };
  [[nodiscard]] ExactHead exact(std::uint64_t token, std::uint32_t q_head, std::span<const float> q,
                                std::optional<double> scale) const;

  // Largest |out - reference| over largest |reference| for the query token `token` (counted over
  // all sequences) and head; adds to the two maxima. Returns what the head's error bound follows
  // from.
  HeadMagnitudes compare(std::uint64_t token, std::uint32_t q_head, std::span<const float> out,
                         double& difference, double& reference) const;

 private:
  BenchCache() = default;
  void set_lengths();
  void shuffle_blocks();
  [[nodiscard]] std::uint64_t num_blocks() const;
  void fill(const KernelTable& kernels);
  void write_rows_of_all(const KernelTable& kernels);

  AttentionBench bench_;
  Storage storage_;
  std::uint64_t block_size_ = 0;
  std::uint64_t k_slice_bytes_ = 0;
  std::uint64_t v_slice_bytes_ = 0;
  SliceShape k_shape_;
  SliceShape v_shape_;
  std::vector<std::uint64_t> lengths_;
  std::vector<std::vector<std::uint32_t>> tables_;
  std::vector<SequenceView> sequences_;
  std::vector<float> queries_;  // [batch * q_len, q_heads, qk_dim]
  // Contents of the first rows, as stored; later rows repeat them: [rows, kv_heads, dim].
  std::uint64_t num_distinct_rows_ = 0;
  std::vector<float> keys_;
  std::vector<float> values_;
  ElementSquares k_squares_;  // where the arithmetic needs them
  ElementSquares v_squares_;
};

}  // namespace kvarto
