#include "profile/sparse_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/checked.h"
#include "kernels/reference.h"

namespace kvarto {
namespace {

constexpr std::uint64_t kSeed = 20260701;
// Rows of the attention repeat after so many; index keys are all different, since equal scores
// would make the selection too easy.
constexpr std::uint64_t kDistinctRows = 1024;
constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 31;
constexpr std::uint64_t kMaxQueryFloats = std::uint64_t{1} << 28;

std::vector<float> normals(std::mt19937_64& random, std::size_t count, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A few channels of rows of `width` elements get offsets, as keys of real models have them.
void add_outliers(std::vector<float>& rows, std::uint64_t width) {
  constexpr float kOffsets[] = {30, 100, 300};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t channel = i % width;
    if (channel % 13 == 5) rows[i] += kOffsets[channel / 13 % 3];
  }
}

std::uint64_t elements_of(const Stream& stream) {
  std::uint64_t elements = 0;
  for (const Field& field : stream.fields) elements += std::uint64_t{field.heads} * field.width;
  return elements;
}

Status check(const SparseBench& bench, const SparseLayer& layer) {
  const auto refuse = [](const char* name, std::uint64_t found, std::uint64_t most) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: found {}, expected 1 to {}", name, found, most));
  };
  if (bench.kv_len == 0 || bench.kv_len > kMaxTokens) {
    return refuse("kv length", bench.kv_len, kMaxTokens);
  }
  if (bench.q_len == 0 || bench.q_len > bench.kv_len) {
    return refuse("query length", bench.q_len, bench.kv_len);
  }
  constexpr std::uint32_t kMaxBatch = 1u << 12;
  if (bench.batch == 0 || bench.batch > kMaxBatch) return refuse("batch", bench.batch, kMaxBatch);
  const auto queries = checked_mul(bench.q_len, std::uint64_t{bench.batch});
  const std::uint64_t width =
      std::max(std::uint64_t{layer.query.q_heads} * layer.query.qk_dim,
               std::uint64_t{layer.query.index_heads} * layer.query.index_dim);
  const auto floats = queries.has_value() ? checked_mul(*queries, width) : std::nullopt;
  if (!floats.has_value() || *floats > kMaxQueryFloats) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("query length {} x batch {}: too large", bench.q_len, bench.batch));
  }
  return {};
}

}  // namespace

Result<SparseLayer> sparse_layer(const ModelSpec& model) {
  for (const LayerGroup& group : model.groups) {
    if (group.layers.empty() || group.layers.front() != 0) continue;
    SparseLayer layer{.query = group.query, .rows = {}, .index = {}};
    bool has_rows = false;
    bool has_index = false;
    for (const Stream& stream : group.streams) {
      if (stream.purpose == Purpose::kIndexer && !stream.owner_layer) {
        layer.index = stream;
        has_index = stream.tokens_per_row == 1;
      } else if (stream.access.kind == Access::Kind::kTopK && stream.tokens_per_row == 1) {
        layer.rows = stream;
        has_rows = true;
      }
    }
    if (has_rows && has_index && group.query.index_heads != 0) return layer;
  }
  return fail(ErrorCode::kInvalidArgument,
              "model: layer 0 has no rows read by top-k beside index keys of its own");
}

Result<SparseCache> SparseCache::create(const SparseBench& bench, const SparseLayer& layer) {
  KVARTO_CHECK_OK(check(bench, layer));
  CacheOptions options;
  options.is_contiguous = bench.block_size == 0;
  if (!options.is_contiguous) options.block_size = bench.block_size;
  options.layout = bench.layout;
  options.num_sequences = bench.batch;
  options.context = bench.kv_len;
  options.micro_batch = bench.kv_len;
  options.is_populated = true;
  options.keeps_squares = bench.arith == Arith::kF16;
  KVARTO_TRY(KvCache cache, KvCache::create(bench.model, options));
  SparseCache sparse(std::move(cache), layer);
  KVARTO_CHECK_OK(sparse.fill(bench));
  return sparse;
}

Status SparseCache::fill(const SparseBench& bench) {
  q_len_ = bench.q_len;
  KVARTO_TRY(row_stream_, cache_.find_stream(0, layer_.rows.name));
  KVARTO_TRY(index_stream_, cache_.find_stream(0, layer_.index.name));
  std::mt19937_64 random(kSeed);
  const std::uint64_t width = elements_of(layer_.rows);
  const bool is_outlier = bench.content == BenchContent::kOutlier;
  std::vector<float> rows = normals(random, std::min(kDistinctRows, bench.kv_len) * width, 1);
  if (is_outlier) add_outliers(rows, width);
  for (std::uint32_t s = 0; s < bench.batch; ++s) {
    sequences_.push_back(cache_.create_sequence().value());
    KVARTO_TRY(const Grant grant, cache_.append(sequences_[s], bench.kv_len));
    if (grant != Grant::kDone) return fail(ErrorCode::kOutOfMemory, "cache: no free block");
    for (std::uint64_t first = 0; first < bench.kv_len; first += kDistinctRows) {
      const std::uint64_t count = std::min(kDistinctRows, bench.kv_len - first);
      std::vector<float> keys = normals(random, count * layer_.query.index_dim, 1);
      if (is_outlier) add_outliers(keys, layer_.query.index_dim);
      const auto bytes = [](std::span<const float> values) {
        return RowSource{Codec::kF32, std::as_bytes(values)};
      };
      KVARTO_CHECK_OK(cache_.write(sequences_[s], row_stream_, first,
                                   bytes(std::span(rows).first(count * width))));
      KVARTO_CHECK_OK(cache_.write(sequences_[s], index_stream_, first, bytes(keys)));
    }
  }
  KVARTO_TRY(rows_, cache_.view(row_stream_, row_stream_, sequences_));
  KVARTO_TRY(index_keys_, cache_.view(index_stream_, index_stream_, sequences_));
  const std::size_t num_queries = bench.batch * bench.q_len;
  const QueryShape& query = layer_.query;
  const float spread = is_outlier ? 4 : 1;
  queries_ = normals(random, num_queries * query.q_heads * query.qk_dim, spread);
  index_queries_ = normals(random, num_queries * query.index_heads * query.index_dim, spread);
  // 1 / sqrt(heads x dim), as DeepSeek's models have it.
  index_weights_ = normals(
      random, num_queries * query.index_heads,
      1 / std::sqrt(static_cast<float>(query.index_heads) * static_cast<float>(query.index_dim)));
  return {};
}

SequenceId SparseCache::sequence_of(std::size_t query) const { return sequences_[query / q_len_]; }

double SparseCache::same_rows(std::size_t query, std::uint64_t num_visible,
                              std::span<const std::uint32_t> rows) const {
  const std::size_t heads = layer_.query.index_heads;
  const std::size_t dim = layer_.query.index_dim;
  std::vector<double> scores(num_visible);
  std::vector<float> key(dim);
  for (std::uint64_t row = 0; row < num_visible; ++row) {
    if (!cache_.read(sequence_of(query), index_stream_, row, key)) return 0;
    for (std::size_t h = 0; h < heads; ++h) {
      const float* q = index_queries_.data() + (query * heads + h) * dim;
      double product = 0;
      for (std::size_t d = 0; d < dim; ++d) product += double{q[d]} * key[d];
      scores[row] += index_weights_[query * heads + h] * std::max(product, 0.0);
    }
  }
  std::vector<std::uint32_t> order(num_visible);
  std::iota(order.begin(), order.end(), 0u);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(rows.size());
  std::partial_sort(order.begin(), end, order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  const auto same = std::count_if(order.begin(), end, [&](std::uint32_t row) {
    return std::binary_search(rows.begin(), rows.end(), row);
  });
  return rows.empty() ? 1 : static_cast<double>(same) / static_cast<double>(rows.size());
}

HeadMagnitudes SparseCache::compare(std::size_t query, std::uint32_t q_head,
                                    std::span<const std::uint32_t> rows, std::span<const float> out,
                                    Deviation& deviation) const {
  const QueryShape& shape = layer_.query;
  std::vector<float> keys(rows.size() * shape.qk_dim);
  std::vector<float> values(rows.size() * shape.v_dim);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto key = std::span(keys).subspan(i * shape.qk_dim, shape.qk_dim);
    if (!cache_.read(sequence_of(query), row_stream_, rows[i], key)) return {};
    std::copy_n(key.begin(), shape.v_dim,
                values.begin() + static_cast<std::ptrdiff_t>(i * shape.v_dim));
  }
  ReferenceCall call;
  call.q =
      std::span(queries_).subspan((query * shape.q_heads + q_head) * shape.qk_dim, shape.qk_dim);
  call.k = keys;
  call.v = values;
  call.qk_dim = shape.qk_dim;
  call.v_dim = shape.v_dim;
  call.end_row = rows.size();
  call.scale = 1 / std::sqrt(static_cast<double>(shape.qk_dim));
  const ReferenceResult exact = reference_attention(call);
  for (std::uint32_t d = 0; d < shape.v_dim; ++d) {
    deviation.difference = std::max(deviation.difference, std::fabs(double{out[d]} - exact.out[d]));
    deviation.reference = std::max(deviation.reference, std::fabs(exact.out[d]));
  }
  return magnitudes_of(call, exact);
}

}  // namespace kvarto
