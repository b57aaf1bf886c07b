// A cache of one layer of sparse attention with random contents, for measurements.

#pragma once

#include <vector>

#include "kvarto/kv_cache.h"
#include "kvarto/measure_sparse.h"
#include "kvarto/selection.h"
#include "profile/error_bound.h"

namespace kvarto {

// The streams of a layer that an indexer's measurement needs.
struct SparseLayer {
  QueryShape query;
  Stream rows;   // K and V, read by top-k
  Stream index;  // index keys
};
// Errors: kInvalidArgument for a model whose first layer has no such streams.
[[nodiscard]] Result<SparseLayer> sparse_layer(const ModelSpec& model);

// Not thread-safe; one owner.
class SparseCache {
 public:
  // Errors: as measure_sparse().
  [[nodiscard]] static Result<SparseCache> create(const SparseBench& bench,
                                                  const SparseLayer& layer);

  [[nodiscard]] const CacheView& rows() const { return rows_.cache(); }
  [[nodiscard]] const CacheView& index_keys() const { return index_keys_.cache(); }
  [[nodiscard]] std::span<const float> queries() const { return queries_; }
  [[nodiscard]] std::span<const float> index_queries() const { return index_queries_; }
  [[nodiscard]] std::span<const float> index_weights() const { return index_weights_; }

  // Share of `rows` that an indexer in double precision selects for a query too.
  [[nodiscard]] double same_rows(std::size_t query, std::uint64_t num_visible,
                                 std::span<const std::uint32_t> rows) const;
  // The output of one head for one query against double precision over `rows` alone; adds to the
  // maxima of both. Returns what the head's error bound follows from.
  struct Deviation {
    double difference = 0;
    double reference = 0;
  };
  HeadMagnitudes compare(std::size_t query, std::uint32_t q_head,
                         std::span<const std::uint32_t> rows, std::span<const float> out,
                         Deviation& deviation) const;

 private:
  explicit SparseCache(KvCache cache, const SparseLayer& layer)
      : cache_(std::move(cache)), layer_(layer) {}
  Status fill(const SparseBench& bench);
  [[nodiscard]] SequenceId sequence_of(std::size_t query) const;

  KvCache cache_;
  SparseLayer layer_;
  std::uint64_t q_len_ = 1;
  StreamId row_stream_{};
  StreamId index_stream_{};
  std::vector<SequenceId> sequences_;
  LayerView rows_;
  LayerView index_keys_;
  std::vector<float> queries_;
  std::vector<float> index_queries_;
  std::vector<float> index_weights_;
};

}  // namespace kvarto
