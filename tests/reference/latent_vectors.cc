#include "reference/latent_vectors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

#include "reference/tolerance.h"

namespace kvarto::test {
namespace {

std::vector<float> floats_of_hex(const std::string& hex) {
  std::vector<float> floats(hex.size() / 8);
  for (std::size_t i = 0; i < floats.size() * 4; ++i) {
    const auto byte = static_cast<unsigned char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    std::memcpy(reinterpret_cast<char*>(floats.data()) + i, &byte, 1);
  }
  return floats;
}

void read_shape(std::istringstream& words, LatentVectors& vectors) {
  const std::map<std::string, std::uint32_t*> numbers = {{"heads", &vectors.heads},
                                                         {"nope", &vectors.nope},
                                                         {"rope", &vectors.rope},
                                                         {"latent", &vectors.latent},
                                                         {"v", &vectors.v},
                                                         {"tokens", &vectors.tokens},
                                                         {"queries", &vectors.queries},
                                                         {"index_heads", &vectors.index_heads},
                                                         {"index_dim", &vectors.index_dim},
                                                         {"top_k", &vectors.top_k}};
  for (std::string key; words >> key;) words >> *numbers.at(key);
}

const float* row_of(const std::vector<float>& rows, std::size_t row, std::size_t width) {
  return rows.data() + row * width;
}

double dot(const float* a, const float* b, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += double{a[i]} * b[i];
  return sum;
}

// [num_outputs] = matrix [num_outputs][width] x row.
std::vector<double> project(const float* matrix, std::size_t num_outputs, const float* row,
                            std::size_t width) {
  std::vector<double> out(num_outputs);
  for (std::size_t i = 0; i < num_outputs; ++i) out[i] = dot(matrix + i * width, row, width);
  return out;
}

std::vector<std::uint32_t> rows_of(const LatentVectors& vectors, std::uint32_t query) {
  if (!vectors.selected.empty()) return vectors.selected[query];
  std::vector<std::uint32_t> rows(vectors.position(query) + 1);
  std::iota(rows.begin(), rows.end(), 0u);
  return rows;
}

}  // namespace

std::vector<LatentVectors> read_latent_vectors() {
  std::ifstream file(KVARTO_SOURCE_DIR "/tests/golden/latent_attention.txt");
  std::vector<LatentVectors> all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "#" || kind.empty()) continue;
    if (kind == "case") {
      all.emplace_back();
      words >> all.back().name;
      read_shape(words, all.back());
    } else if (kind == "selected") {
      all.back().selected.emplace_back();
      for (std::uint32_t row = 0; words >> row;) all.back().selected.back().push_back(row);
    } else {
      std::string hex;
      words >> hex;
      all.back().arrays[kind] = floats_of_hex(hex);
    }
  }
  return all;
}

std::vector<double> expanded_attention(const LatentVectors& vectors) {
  const LatentVectors& x = vectors;
  std::vector<double> out(std::size_t{x.queries} * x.heads * x.v);
  for (std::uint32_t query = 0; query < x.queries; ++query) {
    const std::vector<std::uint32_t> rows = rows_of(x, query);
    for (std::uint32_t head = 0; head < x.heads; ++head) {
      const std::size_t q_head = std::size_t{query} * x.heads + head;
      const float* w_uk = row_of(x.array("w_uk"), std::size_t{head} * x.nope, x.latent);
      const float* w_uv = row_of(x.array("w_uv"), std::size_t{head} * x.v, x.latent);
      const float* q_nope = row_of(x.array("q_nope"), q_head, x.nope);
      std::vector<double> weights;
      for (const std::uint32_t row : rows) {
        const std::vector<double> key =
            project(w_uk, x.nope, row_of(x.array("latent"), row, x.latent), x.latent);
        double score = dot(row_of(x.array("q_rope"), q_head, x.rope),
                           row_of(x.array("rope"), row, x.rope), x.rope);
        for (std::size_t i = 0; i < x.nope; ++i) score += q_nope[i] * key[i];
        weights.push_back(x.array("scale")[0] * score);
      }
      const double largest = *std::max_element(weights.begin(), weights.end());
      double sum = 0;
      for (double& weight : weights) sum += weight = std::exp(weight - largest);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::vector<double> value =
            project(w_uv, x.v, row_of(x.array("latent"), rows[i], x.latent), x.latent);
        for (std::size_t d = 0; d < x.v; ++d) out[q_head * x.v + d] += weights[i] / sum * value[d];
      }
    }
  }
  return out;
}

std::vector<double> index_scores(const LatentVectors& vectors, std::uint32_t query,
                                 const std::vector<float>& index_k) {
  const LatentVectors& x = vectors;
  std::vector<double> scores(x.tokens);
  for (std::uint32_t row = 0; row < x.tokens; ++row) {
    for (std::uint32_t head = 0; head < x.index_heads; ++head) {
      const std::size_t q_head = std::size_t{query} * x.index_heads + head;
      const double product = dot(row_of(x.array("index_q"), q_head, x.index_dim),
                                 row_of(index_k, row, x.index_dim), x.index_dim);
      scores[row] += x.array("index_w")[q_head] * std::max(product, 0.0);
    }
  }
  return scores;
}

double latent_tolerance(const LatentVectors& vectors) {
  // The same sums over magnitudes bound what rounding can add to them.
  LatentVectors x = vectors;
  for (auto& [name, values] : x.arrays) {
    for (float& value : values) value = std::fabs(value);
  }
  double largest_dot = 0;
  double largest_value = 0;
  for (std::uint32_t row = 0; row < x.tokens; ++row) {
    const float* latent = row_of(x.array("latent"), row, x.latent);
    for (std::size_t q_head = 0; q_head < std::size_t{x.queries} * x.heads; ++q_head) {
      const std::size_t head = q_head % x.heads;
      const float* q_nope = row_of(x.array("q_nope"), q_head, x.nope);
      const std::vector<double> key =
          project(row_of(x.array("w_uk"), head * x.nope, x.latent), x.nope, latent, x.latent);
      double score = dot(row_of(x.array("q_rope"), q_head, x.rope),
                         row_of(x.array("rope"), row, x.rope), x.rope);
      for (std::size_t i = 0; i < x.nope; ++i) score += q_nope[i] * key[i];
      largest_dot = std::max(largest_dot, x.array("scale")[0] * score);
    }
    for (const double value :
         project(x.array("w_uv").data(), std::size_t{x.heads} * x.v, latent, x.latent)) {
      largest_value = std::max(largest_value, value);
    }
  }
  const ErrorTerms terms{.dim = std::uint64_t{x.nope} + x.latent + x.rope,
                         .rows = x.tokens,
                         .largest_dot = largest_dot};
  return (output_tolerance(terms) + gamma(x.latent + 4.0)) * largest_value;
}

}  // namespace kvarto::test
