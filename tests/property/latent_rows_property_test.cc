// Attention over latent rows, K and V at once, against sums in double precision: whatever widths,
// codecs, blocks and heads, after forks, and over rows that a call selects.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "kvarto/attention.h"
#include "latent_cache.h"

namespace kvarto {
namespace {

using rc::gen::inRange;
using Rows = std::vector<std::uint32_t>;

// Outputs of N(0, 1) rows; f32 sums of at most 576 products and 200 rows stay below this.
constexpr double kBound = 2e-4;

LatentShape draw_shape() {
  LatentShape shape;
  const auto [latent, rope] = *rc::gen::element<std::pair<std::uint32_t, std::uint32_t>>(
      std::pair{512u, 64u}, std::pair{256u, 64u}, std::pair{256u, 32u}, std::pair{512u, 0u},
      std::pair{128u, 64u}, std::pair{96u, 16u});
  shape.latent_dim = latent;
  shape.rope_dim = rope;
  shape.q_heads = *rc::gen::element(1u, 4u, 16u, 20u, 128u);
  return shape;
}

std::string draw_type(const LatentShape& shape) {
  const bool has_groups = shape.latent_dim % 32 == 0 && shape.rope_dim % 32 == 0;
  const bool has_packed_row = shape.latent_dim % 128 == 0;
  return *rc::gen::element<std::string>("bf16", "f16", "f32", "int8",
                                        has_packed_row ? "fp8_ds_mla" : "fp8",
                                        has_groups ? "q8_0" : "int4");
}

CacheOptions draw_options() {
  CacheOptions options;
  options.layout = *rc::gen::element(Layout::kGeneric, Layout::kHardware);
  options.block_size = *rc::gen::element<std::uint64_t>(1, 7, 16, 64);
  options.context = 200;
  options.num_sequences = 4;
  options.micro_batch = 200;
  options.poisons_freed_blocks = true;
  return options;
}

std::vector<float> draw_queries(std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(*inRange(0, 1000)));
  std::normal_distribution<float> normal;
  std::vector<float> q(count);
  for (float& value : q) value = normal(random);
  return q;
}

Rows all_rows(std::uint64_t count) {
  Rows rows(count);
  std::iota(rows.begin(), rows.end(), 0u);
  return rows;
}

// Rows of some sequences, one of them a fork.
std::vector<LatentSequence> draw_batch(LatentCache& cache) {
  std::vector<LatentSequence> batch;
  batch.push_back(cache.create());
  cache.grow(batch[0], *inRange<std::uint64_t>(1, 150));
  if (*inRange(0, 2) == 0) {
    batch.push_back(
        cache.fork(batch[0], *inRange<std::uint64_t>(0, cache.num_tokens(batch[0]) + 1)));
    cache.grow(batch[1], *inRange<std::uint64_t>(1, 40));
    cache.grow(batch[0], *inRange<std::uint64_t>(1, 40));
  }
  batch.push_back(cache.create());
  cache.grow(batch.back(), *inRange<std::uint64_t>(1, 130));
  RC_ASSERT(cache.is_good());
  return batch;
}

struct Outputs {
  std::vector<float> out;
  AttentionReport report;
};

Outputs decode(const LatentCache& cache, const LatentShape& shape,
               const std::vector<LatentSequence>& batch, std::span<const float> q,
               std::span<const std::span<const std::uint32_t>> selections) {
  const auto view = cache.view(batch);
  if (!view) RC_FAIL(view.error().message);
  Outputs outputs;
  outputs.out.resize(batch.size() * shape.q_heads * shape.latent_dim);
  DecodeCall call{.view = view->cache(), .num_q_heads = shape.q_heads, .q = q, .out = outputs.out};
  call.selections = selections;
  call.options.scale = 0.1f;
  AttentionRunner runner = *AttentionRunner::create({.num_threads = 2});
  const auto report = runner.decode(call);
  if (!report) RC_FAIL(report.error().message);
  outputs.report = *report;
  return outputs;
}

RC_GTEST_PROP(LatentRowsProperty, EveryHeadReadsOneRowAsKeyAndAsValue, ()) {
  const LatentShape shape = draw_shape();
  LatentCache cache(shape, draw_type(shape), draw_options());
  const std::vector<LatentSequence> batch = draw_batch(cache);
  const std::vector<float> q = draw_queries(batch.size() * shape.q_heads * cache.width());
  const Outputs outputs = decode(cache, shape, batch, q, {});
  for (std::size_t s = 0; s < batch.size(); ++s) {
    const Rows rows = all_rows(cache.num_tokens(batch[s]));
    for (std::uint32_t head = 0; head < shape.q_heads; head += 3) {
      const std::size_t query = s * shape.q_heads + head;
      const std::vector<double> expected = cache.attend(
          batch[s], std::span(q).subspan(query * cache.width(), cache.width()), rows, 0.1f);
      for (std::uint32_t d = 0; d < shape.latent_dim; ++d) {
        RC_ASSERT(std::abs(outputs.out[query * shape.latent_dim + d] - expected[d]) < kBound);
      }
    }
  }
}

RC_GTEST_PROP(LatentRowsProperty, ARowIsCountedOnceThoughItIsKeyAndValue, ()) {
  const LatentShape shape = draw_shape();
  LatentCache cache(shape, draw_type(shape), draw_options());
  std::vector<LatentSequence> batch = {cache.create()};
  const auto tokens = *inRange<std::uint64_t>(1, 190);
  cache.grow(batch[0], tokens);
  const std::vector<float> q = draw_queries(shape.q_heads * cache.width());
  const Outputs outputs = decode(cache, shape, batch, q, {});
  const Stream& stream = cache.cache().model().groups[0].streams[0];
  RC_ASSERT(outputs.report.rows_read == tokens);
  RC_ASSERT(outputs.report.bytes_read == tokens * row_bytes(stream).total());
}

// Overwrites all rows of a sequence but `kept` with bytes that are NaN in every float type.
void poison_all_but(LatentCache& cache, const LatentSequence& sequence, const Rows& kept) {
  const auto view = cache.cache().sequence_view(sequence.id, cache.stream());
  const auto stream = cache.cache().field_view(cache.stream(), 0);
  const Stream& spec = cache.cache().model().groups[0].streams[0];
  const std::uint64_t rows_per_block = cache.cache().tracks()[0].rows_per_block;
  std::byte* base = cache.cache().writable_base(cache.stream());
  const std::uint64_t held = view->block_table.size() * rows_per_block;
  for (std::uint64_t row = 0; row < held; ++row) {
    if (std::binary_search(kept.begin(), kept.end(), row)) continue;
    std::byte* at = base + view->block_table[row / rows_per_block] * stream->block_stride_bytes +
                    row % rows_per_block * stream->layout.row_stride_bytes;
    std::memset(at, 0xFF, row_bytes(spec).total());
  }
}

RC_GTEST_PROP(LatentRowsProperty, ASelectionReadsItsRowsAndNoOthers, ()) {
  const LatentShape shape = draw_shape();
  LatentCache cache(shape, draw_type(shape), draw_options());
  std::vector<LatentSequence> batch = {cache.create(), cache.create()};
  std::vector<Rows> chosen(2);
  for (std::size_t s = 0; s < 2; ++s) {
    cache.grow(batch[s], *inRange<std::uint64_t>(1, 190));
    const auto percent = *inRange(0, 101);
    for (std::uint32_t row = 0; row < cache.num_tokens(batch[s]); ++row) {
      if (*inRange(0, 100) < percent) chosen[s].push_back(row);
    }
  }
  const std::vector<float> q = draw_queries(2 * shape.q_heads * cache.width());
  const std::vector<std::span<const std::uint32_t>> selections(chosen.begin(), chosen.end());
  for (std::size_t s = 0; s < 2; ++s) poison_all_but(cache, batch[s], chosen[s]);
  const Outputs outputs = decode(cache, shape, batch, q, selections);
  RC_ASSERT(outputs.report.rows_read == chosen[0].size() + chosen[1].size());
  for (std::size_t s = 0; s < 2; ++s) {
    for (std::uint32_t head = 0; head < shape.q_heads; head += 5) {
      const std::size_t query = s * shape.q_heads + head;
      const std::vector<double> expected = cache.attend(
          batch[s], std::span(q).subspan(query * cache.width(), cache.width()), chosen[s], 0.1f);
      for (std::uint32_t d = 0; d < shape.latent_dim; ++d) {
        RC_ASSERT(std::abs(outputs.out[query * shape.latent_dim + d] - expected[d]) < kBound);
      }
    }
  }
}

RC_GTEST_PROP(LatentRowsProperty, SelectingAllRowsIsReadingAllRows, ()) {
  const LatentShape shape = draw_shape();
  LatentCache cache(shape, draw_type(shape), draw_options());
  std::vector<LatentSequence> batch = {cache.create()};
  cache.grow(batch[0], *inRange<std::uint64_t>(1, 190));
  const std::vector<float> q = draw_queries(shape.q_heads * cache.width());
  const Rows rows = all_rows(cache.num_tokens(batch[0]));
  const std::vector<std::span<const std::uint32_t>> selections = {rows};
  RC_ASSERT(decode(cache, shape, batch, q, selections).out ==
            decode(cache, shape, batch, q, {}).out);
}

RC_GTEST_PROP(LatentRowsProperty, RowsBehindTheLastTokenChangeNothing, ()) {
  const LatentShape shape = draw_shape();
  LatentCache cache(shape, draw_type(shape), draw_options());
  std::vector<LatentSequence> batch = {cache.create()};
  cache.grow(batch[0], *inRange<std::uint64_t>(1, 190));
  const std::vector<float> q = draw_queries(shape.q_heads * cache.width());
  const std::vector<float> before = decode(cache, shape, batch, q, {}).out;
  poison_all_but(cache, batch[0], all_rows(cache.num_tokens(batch[0])));
  RC_ASSERT(decode(cache, shape, batch, q, {}).out == before);
}

RC_GTEST_PROP(LatentRowsProperty, APrefillIsTheDecodeOfEachOfItsTokens, ()) {
  const LatentShape shape = draw_shape();
  LatentCache cache(shape, draw_type(shape), draw_options());
  std::vector<LatentSequence> batch = {cache.create()};
  const auto tokens = *inRange<std::uint64_t>(1, 120);
  const auto q_len = *inRange<std::uint64_t>(1, std::min<std::uint64_t>(tokens, 9) + 1);
  cache.grow(batch[0], tokens);
  const std::vector<float> q = draw_queries(q_len * shape.q_heads * cache.width());
  std::vector<float> out(q_len * shape.q_heads * shape.latent_dim);
  const auto view = cache.view(batch);
  PrefillCall call{.view = view->cache(),
                   .q_lens = {&q_len, 1},
                   .num_q_heads = shape.q_heads,
                   .q = q,
                   .out = out};
  call.options.scale = 0.1f;
  AttentionRunner runner = *AttentionRunner::create({.num_threads = 2});
  const auto report = runner.prefill(call);
  if (!report) RC_FAIL(report.error().message);
  for (std::uint64_t i = 0; i < q_len; ++i) {
    const Rows rows = all_rows(tokens - q_len + i + 1);
    const std::size_t query = i * shape.q_heads;
    const std::vector<double> expected = cache.attend(
        batch[0], std::span(q).subspan(query * cache.width(), cache.width()), rows, 0.1f);
    for (std::uint32_t d = 0; d < shape.latent_dim; ++d) {
      RC_ASSERT(std::abs(out[query * shape.latent_dim + d] - expected[d]) < kBound);
    }
  }
}

struct HalfCase {
  LatentShape shape;
  std::unique_ptr<LatentCache> cache;
  std::vector<LatentSequence> batch;
  std::vector<float> q;
  std::vector<float> out;

  HalfCase() {
    shape = draw_shape();
    shape.q_heads = *rc::gen::element(16u, 20u, 128u);
    CacheOptions options = draw_options();
    options.keeps_squares = true;
    cache = std::make_unique<LatentCache>(shape, "f16", options);
    batch.push_back(cache->create());
    cache->grow(batch[0], *inRange<std::uint64_t>(1, 190));
    q = draw_queries(shape.q_heads * cache->width());
    out.resize(std::size_t{shape.q_heads} * shape.latent_dim);
  }

  [[nodiscard]] float scale() const { return 1 / std::sqrt(static_cast<float>(cache->width())); }
  [[nodiscard]] Result<AttentionReport> decode() {
    const auto view = cache->view(batch);
    DecodeCall call{.view = view->cache(), .num_q_heads = shape.q_heads, .q = q, .out = out};
    call.options.arith = Arith::kF16;
    AttentionRunner runner = *AttentionRunner::create({});
    return runner.decode(call);
  }
};

bool has_half_kernels() { return half_kernels(**active_kernels()).has_value(); }

RC_GTEST_PROP(LatentRowsProperty, ArithmeticInF16StaysNearTheSumsInDoublePrecision, ()) {
  if (!has_half_kernels()) return;
  HalfCase half;
  const auto report = half.decode();
  if (!report) RC_FAIL(report.error().message);
  RC_ASSERT(report->arith == "f16");
  const std::uint32_t width = half.cache->width();
  const Rows rows = all_rows(half.cache->num_tokens(half.batch[0]));
  for (std::uint32_t head = 0; head < half.shape.q_heads; head += 7) {
    const std::vector<double> expected = half.cache->attend(
        half.batch[0], std::span(half.q).subspan(head * width, width), rows, half.scale());
    for (std::uint32_t d = 0; d < half.shape.latent_dim; ++d) {
      // Scores are off by at most six of the deviations that the bound admits, 1.5e-2, and the
      // sums of values, at most 8, by 1e-3 of them.
      const double error = half.out[std::size_t{head} * half.shape.latent_dim + d] - expected[d];
      RC_ASSERT(std::abs(error) < 8 * (6 * kMaxHalfScoreError + 1e-3));
    }
  }
}

RC_GTEST_PROP(LatentRowsProperty, QueriesTooLargeForF16AreRefused, ()) {
  if (!has_half_kernels()) return;
  HalfCase half;
  for (float& value : half.q) value *= 1000;
  const auto report = half.decode();
  RC_ASSERT(!report.has_value());
  RC_ASSERT(report.error().code == ErrorCode::kUnsupported);
  RC_ASSERT(std::count(half.out.begin(), half.out.end(), 0.0f) ==
            static_cast<std::ptrdiff_t>(half.out.size()));
}

}  // namespace
}  // namespace kvarto
