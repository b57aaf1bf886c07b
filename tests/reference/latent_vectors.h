// The cases of tests/golden/latent_attention.txt: latent and sparse attention by another
// implementation.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kvarto::test {

struct LatentVectors {
  std::string name;
  std::uint32_t heads = 0;
  std::uint32_t nope = 0;  // elements of a query head without and with rotation
  std::uint32_t rope = 0;
  std::uint32_t latent = 0;
  std::uint32_t v = 0;  // elements of a head's output
  std::uint32_t tokens = 0;
  std::uint32_t queries = 0;  // the last tokens of the sequence
  std::uint32_t index_heads = 0;
  std::uint32_t index_dim = 0;
  std::uint32_t top_k = 0;  // 0: dense
  // scale [1]; q_nope [queries][heads][nope], q_rope; latent [tokens][latent], rope [tokens][rope];
  // w_uk [heads][nope][latent], w_uv [heads][v][latent]; index_q [queries][index_heads][index_dim],
  // index_k [tokens][index_dim], index_w [queries][index_heads]; out [queries][heads][v].
  std::map<std::string, std::vector<float>> arrays;
  std::vector<std::vector<std::uint32_t>> selected;  // ascending; by query

  [[nodiscard]] const std::vector<float>& array(const std::string& array_name) const {
    return arrays.at(array_name);
  }
  // Position of a query's token.
  [[nodiscard]] std::uint32_t position(std::uint32_t query) const {
    return tokens - queries + query;
  }
};

[[nodiscard]] std::vector<LatentVectors> read_latent_vectors();

// out [queries][heads][v] in double precision, by expanding keys and values for every head. Reads
// `selected` where there is one, otherwise all rows up to the query's own.
[[nodiscard]] std::vector<double> expanded_attention(const LatentVectors& vectors);

// Index scores of one query, [tokens]: the sum over heads of w x max(0, q . k).
[[nodiscard]] std::vector<double> index_scores(const LatentVectors& vectors, std::uint32_t query,
                                               const std::vector<float>& index_k);

// Bound of the difference between `out` and an attention over the same numbers in f32, by formula
// of tolerance.h: transformers' softmax is f32, and so are the numbers written down.
[[nodiscard]] double latent_tolerance(const LatentVectors& vectors);

}  // namespace kvarto::test
