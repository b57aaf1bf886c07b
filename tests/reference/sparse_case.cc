#include "reference/sparse_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "kernels/index_kernels.h"
#include "reference/tolerance.h"
#include "spec/architectures.h"

namespace kvarto::test {
namespace {

RowSource source_of(std::span<const float> values) { return {Codec::kF32, std::as_bytes(values)}; }

KvCache make_cache(const SparseShape& shape) {
  const LatentShape latent{
      .q_heads = shape.q_heads, .latent_dim = shape.latent_dim, .rope_dim = shape.rope_dim};
  const IndexerShape indexer{
      .heads = shape.index_heads, .dim = shape.index_dim, .top_k = shape.top_k};
  ModelSpec model;
  model.num_layers = 1;
  model.groups = group_layers({dsa_layer(latent, indexer)});
  model = with_types(model, {shape.type, shape.type, shape.index_type}).value();
  CacheOptions options;
  options.block_size = shape.block_size;
  options.layout = shape.layout;
  options.num_sequences = shape.lengths.size();
  options.context = *std::max_element(shape.lengths.begin(), shape.lengths.end()) + 1;
  options.micro_batch = options.context;
  options.wants_huge_pages = false;
  return KvCache::create(std::move(model), options).value();
}

void expect_ok(const Status& status) {
  if (!status.has_value()) throw std::runtime_error(status.error().message);
}

}  // namespace

SparseCase::SparseCase(const SparseShape& given) : shape(given), cache(make_cache(given)) {
  std::mt19937_64 random(shape.seed);
  std::normal_distribution<float> normal;
  const auto draw = [&](std::size_t count, float spread) {
    std::vector<float> values(count);
    for (float& value : values) value = spread * normal(random);
    return values;
  };
  latent = cache.find_stream(0, "latent").value();
  index_key = cache.find_stream(0, "index_key").value();
  for (std::size_t s = 0; s < shape.lengths.size(); ++s) {
    sequences.push_back(cache.create_sequence().value());
    if (shape.lengths[s] == 0) continue;
    static_cast<void>(cache.append(sequences[s], shape.lengths[s]).value());
    const std::size_t width = shape.latent_dim + shape.rope_dim;
    expect_ok(cache.write(sequences[s], latent, 0, source_of(draw(shape.lengths[s] * width, 1))));
    expect_ok(cache.write(sequences[s], index_key, 0,
                          source_of(draw(shape.lengths[s] * shape.index_dim, 1))));
  }
  index_q = draw(sequences.size() * shape.index_heads * shape.index_dim, 1);
  index_weights = draw(sequences.size() * shape.index_heads, 0.1f);
}

LayerView SparseCase::index_view() const {
  return cache.view(index_key, index_key, sequences).value();
}

SelectCall SparseCase::select_call(const LayerView& view, IndexArith arith) const {
  SelectCall call;
  call.view = view.cache();
  call.num_index_heads = shape.index_heads;
  call.q = index_q;
  call.weights = index_weights;
  call.top_k = shape.top_k;
  call.arith = arith;
  return call;
}

std::vector<float> SparseCase::index_keys(std::size_t s) const {
  std::vector<float> keys(shape.lengths[s] * shape.index_dim);
  if (!keys.empty()) expect_ok(cache.read(sequences[s], index_key, 0, keys));
  return keys;
}

void SparseCase::write_index_key(std::size_t s, std::uint64_t row, std::span<const float> key) {
  expect_ok(cache.write(sequences[s], index_key, row, source_of(key)));
}

ExactScores exact_scores(const IndexQuery& query) {
  const std::size_t heads = query.weights.size();
  const std::size_t dim = query.q.size() / heads;
  const std::size_t rows = query.keys.size() / dim;
  const auto largest = [&](const float* x) {
    float found = 0;
    for (std::size_t d = 0; d < dim; ++d) found = std::max(found, std::fabs(x[d]));
    return double{found};
  };
  ExactScores exact;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* k = query.keys.data() + row * dim;
    // Keys of e4m3 are exact from an eighth of 224 of their largest on; others have units of
    // their largest.
    const double key_unit = largest(k) / 224 / 8;
    double score = 0;
    double bound = 0;
    for (std::size_t h = 0; h < heads; ++h) {
      const float* q = query.q.data() + h * dim;
      const double query_unit = largest(q) / index_query_max(static_cast<std::uint32_t>(dim));
      double product = 0;
      double magnitude = 0;
      double rounding = 0;
      for (std::size_t d = 0; d < dim; ++d) {
        product += double{q[d]} * k[d];
        magnitude += std::fabs(double{q[d]} * k[d]);
        rounding += std::fabs(q[d]) * key_unit / 2 + std::fabs(k[d]) * query_unit / 2 +
                    key_unit * query_unit / 4;
      }
      const double weight = std::fabs(query.weights[h]);
      score += query.weights[h] * std::max(product, 0.0);
      const double terms = static_cast<double>(dim + heads) + 8;
      bound += weight * gamma(terms) * magnitude;
      if (query.arith == IndexArith::kInt16) bound += weight * rounding * (1 + gamma(terms));
    }
    exact.scores.push_back(score);
    exact.bounds.push_back(bound);
  }
  return exact;
}

std::string selection_error(const ExactScores& exact, std::size_t num_visible, std::size_t top_k,
                            std::span<const std::uint32_t> rows) {
  if (rows.size() != std::min(num_visible, top_k)) {
    return fmt::format("{} rows, expected {}", rows.size(), std::min(num_visible, top_k));
  }
  std::vector<bool> is_taken(num_visible);
  double least = INFINITY;  // that a taken row's computed score may have been at most
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= num_visible) return fmt::format("row {} of {}", rows[i], num_visible);
    if (i != 0 && rows[i] <= rows[i - 1]) return "not ascending";
    is_taken[rows[i]] = true;
    least = std::min(least, exact.scores[rows[i]] + exact.bounds[rows[i]]);
  }
  for (std::size_t row = 0; row < num_visible; ++row) {
    if (is_taken[row] || exact.scores[row] - exact.bounds[row] <= least) continue;
    return fmt::format("row {} of score {} is left out, one of {} at most is taken", row,
                       exact.scores[row], least);
  }
  return "";
}

}  // namespace kvarto::test
