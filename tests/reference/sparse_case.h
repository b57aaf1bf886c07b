// A cache of one or two layers of sparse attention with random rows, and what an indexer in double
// precision says of it.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvarto/kv_cache.h"
#include "kvarto/selection.h"

namespace kvarto::test {

struct SparseShape {
  std::uint32_t q_heads = 4;
  std::uint32_t latent_dim = 32;
  std::uint32_t rope_dim = 16;
  std::uint32_t index_heads = 5;
  std::uint32_t index_dim = 128;
  std::uint64_t top_k = 16;
  std::vector<std::uint64_t> lengths = {100};
  std::string type = "f32";
  std::string index_type = "fp8";
  Layout layout = Layout::kHardware;
  std::uint64_t block_size = 16;
  std::uint64_t seed = 1;
};

class SparseCase {
 public:
  explicit SparseCase(const SparseShape& shape);

  // Index keys, and latent rows as K and V.
  [[nodiscard]] LayerView index_view() const;
  [[nodiscard]] SelectCall select_call(const LayerView& view, IndexArith arith) const;

  // Index keys of sequence s as the cache stores them, [length][index_dim].
  [[nodiscard]] std::vector<float> index_keys(std::size_t s) const;
  void write_index_key(std::size_t s, std::uint64_t row, std::span<const float> key);

  SparseShape shape;
  KvCache cache;
  StreamId latent{};
  StreamId index_key{};
  std::vector<SequenceId> sequences;
  std::vector<float> index_q;        // [num_sequences, index_heads, index_dim]
  std::vector<float> index_weights;  // [num_sequences, index_heads]
};

// Scores of rows [0, num_rows) and how far those of an arithmetic may be from them.
struct ExactScores {
  std::vector<double> scores;
  std::vector<double> bounds;
};
struct IndexQuery {
  std::span<const float> q;        // [index_heads, index_dim]
  std::span<const float> weights;  // [index_heads]
  std::span<const float> keys;     // [num_rows, index_dim]
  IndexArith arith{};
};
[[nodiscard]] ExactScores exact_scores(const IndexQuery& query);

// Why `rows` is not what scores within their bounds of the exact ones select from the first
// `num_visible` rows; "" if it is.
[[nodiscard]] std::string selection_error(const ExactScores& exact, std::size_t num_visible,
                                          std::size_t top_k, std::span<const std::uint32_t> rows);

}  // namespace kvarto::test
