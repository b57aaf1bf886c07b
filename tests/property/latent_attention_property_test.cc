// Latent attention with its up-projections, naive and absorbed, against the definition in double
// precision: keys and values of every head computed from the rows as stored.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kvarto/latent_attention.h"
#include "latent_cache.h"

namespace kvarto {
namespace {

using rc::gen::inRange;

struct Drawn {
  LatentShape shape;
  std::vector<float> w_uk;
  std::vector<float> w_uv;
  float scale = 0;
  [[nodiscard]] std::uint32_t key_dim() const { return shape.nope_dim + shape.rope_dim; }
};

std::vector<float> normal_numbers(std::size_t count, double deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, static_cast<float>(deviation));
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

Drawn draw() {
  Drawn drawn;
  LatentShape& shape = drawn.shape;
  const auto [latent, rope] = *rc::gen::element<std::pair<std::uint32_t, std::uint32_t>>(
      std::pair{512u, 64u}, std::pair{256u, 64u}, std::pair{256u, 32u}, std::pair{512u, 0u},
      std::pair{128u, 64u}, std::pair{40u, 8u});
  shape.latent_dim = latent;
  shape.rope_dim = rope;
  shape.q_heads = *rc::gen::element(1u, 3u, 16u, 20u);
  shape.nope_dim = *rc::gen::element(16u, 72u, 128u);
  shape.v_dim = *rc::gen::element(16u, 40u, 128u);
  const auto seed = static_cast<unsigned>(*inRange(0, 1000));
  const double deviation = 1 / std::sqrt(static_cast<double>(latent));
  drawn.w_uk =
      normal_numbers(std::size_t{shape.q_heads} * shape.nope_dim * latent, deviation, seed);
  drawn.w_uv =
      normal_numbers(std::size_t{shape.q_heads} * shape.v_dim * latent, deviation, seed + 1);
  drawn.scale = 1 / std::sqrt(static_cast<float>(drawn.key_dim()));
  return drawn;
}

std::string draw_type(const LatentShape& shape) {
  return *rc::gen::element<std::string>(
      "bf16", "f16", "f32", "int8",
      shape.latent_dim % 128 == 0 && shape.rope_dim != 0 ? "fp8_ds_mla" : "fp8");
}

CacheOptions options_of(std::uint64_t window) {
  CacheOptions options;
  options.layout = *rc::gen::element(Layout::kGeneric, Layout::kHardware);
  options.block_size = *rc::gen::element<std::uint64_t>(1, 7, 16, 64);
  options.context = 300;
  options.num_sequences = 4;
  options.micro_batch = window != 0 ? 8 : 300;
  options.poisons_freed_blocks = true;
  return options;
}

// One head of one query over `rows`: the definition.
std::vector<double> defined(const Drawn& drawn, const LatentCache& cache,
                            const LatentSequence& sequence, std::uint32_t head, const float* q,
                            const std::vector<std::uint32_t>& rows) {
  const LatentShape& shape = drawn.shape;
  const std::uint32_t latent = shape.latent_dim;
  std::vector<double> scores;
  double largest = -INFINITY;
  // W_UK^T q, so that a row costs one product; the naive sum in another order.
  std::vector<double> folded(latent, 0.0);
  for (std::uint32_t n = 0; n < shape.nope_dim; ++n) {
    const float* w = drawn.w_uk.data() + (std::size_t{head} * shape.nope_dim + n) * latent;
    for (std::uint32_t d = 0; d < latent; ++d) folded[d] += double{q[n]} * double{w[d]};
  }
  for (const std::uint32_t row : rows) {
    const float* c = sequence.rows.data() + std::size_t{row} * cache.width();
    double score = 0;
    for (std::uint32_t d = 0; d < latent; ++d) score += folded[d] * double{c[d]};
    for (std::uint32_t r = 0; r < shape.rope_dim; ++r) {
      score += double{q[shape.nope_dim + r]} * double{c[latent + r]};
    }
    scores.push_back(score * double{drawn.scale});
    largest = std::max(largest, scores.back());
  }
  std::vector<double> mean(latent, 0.0);
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double weight = std::exp(scores[i] - largest);
    sum += weight;
    const float* c = sequence.rows.data() + std::size_t{rows[i]} * cache.width();
    for (std::uint32_t d = 0; d < latent; ++d) mean[d] += weight * double{c[d]};
  }
  std::vector<double> out(shape.v_dim, 0.0);
  for (std::uint32_t v = 0; v < shape.v_dim && sum > 0; ++v) {
    const float* w = drawn.w_uv.data() + (std::size_t{head} * shape.v_dim + v) * latent;
    for (std::uint32_t d = 0; d < latent; ++d) out[v] += double{w[d]} * mean[d] / sum;
  }
  return out;
}

// Keys have an offset of 3 in one channel, so that scores reach some tens; f32 sums of at most 576
// products of numbers of size 1 then move an output by less than this.
constexpr double kBound = 1e-3;

struct Run {
  std::vector<LatentSequence> batch;
  std::vector<std::uint64_t> q_lens;  // empty: a decode
  std::vector<std::vector<std::uint32_t>> chosen;
  std::uint64_t window = 0;
};

void check_form(const Drawn& drawn, const LatentCache& cache, const Run& run, LatentForm form) {
  const LatentShape& shape = drawn.shape;
  std::uint64_t tokens = run.batch.size();
  if (!run.q_lens.empty()) {
    tokens = 0;
    for (const std::uint64_t length : run.q_lens) tokens += length;
  }
  const std::vector<float> q = normal_numbers(tokens * shape.q_heads * drawn.key_dim(), 1, 77);
  std::vector<float> out(tokens * shape.q_heads * shape.v_dim, 99.0f);
  const auto view = cache.view(run.batch);
  if (!view) RC_FAIL(view.error().message);
  const std::vector<std::span<const std::uint32_t>> selections(run.chosen.begin(),
                                                               run.chosen.end());
  LatentCall call;
  call.view = view->cache();
  call.q_lens = run.q_lens;
  call.num_heads = shape.q_heads;
  call.weights = {drawn.w_uk, drawn.w_uv, shape.nope_dim, shape.v_dim};
  call.q = q;
  call.options.window = run.window;
  call.form = form;
  call.out = out;
  call.selections = selections;
  AttentionRunner runner = *AttentionRunner::create({.num_threads = 2});
  const auto report = attend_latent(runner, call);
  if (!report) RC_FAIL(report.error().message);
  if (form != LatentForm::kAuto) RC_ASSERT(report->form == form);
  std::uint64_t token = 0;
  for (std::size_t s = 0; s < run.batch.size(); ++s) {
    const std::uint64_t length = cache.num_tokens(run.batch[s]);
    const std::uint64_t queries = run.q_lens.empty() ? 1 : run.q_lens[s];
    for (std::uint64_t i = 0; i < queries; ++i, ++token) {
      const std::uint64_t end = length - queries + i + 1;
      std::vector<std::uint32_t> rows;
      for (std::uint64_t row = run.window != 0 && end > run.window ? end - run.window : 0;
           row < end; ++row) {
        rows.push_back(static_cast<std::uint32_t>(row));
      }
      if (!run.chosen.empty()) rows = run.chosen[s];
      for (std::uint32_t head = 0; head < shape.q_heads; head += 7) {
        const std::size_t query = token * shape.q_heads + head;
        const std::vector<double> expected =
            defined(drawn, cache, run.batch[s], head, q.data() + query * drawn.key_dim(), rows);
        for (std::uint32_t v = 0; v < shape.v_dim; ++v) {
          RC_ASSERT(std::abs(out[query * shape.v_dim + v] - expected[v]) < kBound);
        }
      }
    }
  }
}

RC_GTEST_PROP(LatentAttentionProperty, NaiveAndAbsorbedDecodeAreTheDefinition, ()) {
  const Drawn drawn = draw();
  LatentCache cache(drawn.shape, draw_type(drawn.shape), options_of(0));
  Run run;
  run.batch.push_back(cache.create());
  cache.grow(run.batch[0], *inRange<std::uint64_t>(1, 140));
  run.batch.push_back(
      cache.fork(run.batch[0], *inRange<std::uint64_t>(0, cache.num_tokens(run.batch[0]) + 1)));
  cache.grow(run.batch[1], *inRange<std::uint64_t>(1, 30));
  run.batch.push_back(cache.create());  // without tokens
  RC_ASSERT(cache.is_good());
  for (const LatentForm form : {LatentForm::kNaive, LatentForm::kAbsorbed}) {
    check_form(drawn, cache, run, form);
  }
}

RC_GTEST_PROP(LatentAttentionProperty, NaiveAndAbsorbedPrefillAreTheDefinition, ()) {
  const Drawn drawn = draw();
  LatentCache cache(drawn.shape, draw_type(drawn.shape), options_of(0));
  Run run;
  for (int s = 0; s < 2; ++s) {
    run.batch.push_back(cache.create());
    const auto tokens = *inRange<std::uint64_t>(1, 90);
    cache.grow(run.batch.back(), tokens);
    run.q_lens.push_back(*inRange<std::uint64_t>(0, std::min<std::uint64_t>(tokens, 6) + 1));
  }
  for (const LatentForm form : {LatentForm::kNaive, LatentForm::kAbsorbed, LatentForm::kAuto}) {
    check_form(drawn, cache, run, form);
  }
}

RC_GTEST_PROP(LatentAttentionProperty, BothFormsReadSelectedRowsAlone, ()) {
  const Drawn drawn = draw();
  LatentCache cache(drawn.shape, draw_type(drawn.shape), options_of(0));
  Run run;
  for (int s = 0; s < 2; ++s) {
    run.batch.push_back(cache.create());
    cache.grow(run.batch.back(), *inRange<std::uint64_t>(1, 140));
    run.chosen.emplace_back();
    const auto step = *inRange<std::uint32_t>(1, 5);
    for (std::uint32_t row = step - 1; row < cache.num_tokens(run.batch.back()); row += step) {
      run.chosen.back().push_back(row);
    }
  }
  for (const LatentForm form : {LatentForm::kNaive, LatentForm::kAbsorbed}) {
    check_form(drawn, cache, run, form);
  }
}

// Rows that have left a window are not held, and their blocks are poisoned.
RC_GTEST_PROP(LatentAttentionProperty, BothFormsFollowAWindowWhoseRowsHaveLeft, ()) {
  const Drawn drawn = draw();
  Run run;
  run.window = *inRange<std::uint64_t>(1, 100);
  LatentCache cache(drawn.shape, draw_type(drawn.shape), options_of(run.window),
                    {Lifetime::Kind::kWindow, run.window});
  run.batch.push_back(cache.create());
  for (int i = *inRange(1, 30); i > 0; --i) {
    cache.grow(run.batch[0], *inRange<std::uint64_t>(1, 9));
  }
  RC_ASSERT(cache.is_good());
  for (const LatentForm form : {LatentForm::kNaive, LatentForm::kAbsorbed}) {
    check_form(drawn, cache, run, form);
  }
}

LatentWork deepseek_v3(std::uint64_t rows, std::uint64_t queries) {
  LatentWork work{.num_heads = 128,
                  .latent_dim = 512,
                  .rope_dim = 64,
                  .nope_dim = 128,
                  .v_dim = 128,
                  .row_bytes = 1152,
                  .num_rows = rows,
                  .num_queries = queries};
  for (std::uint64_t i = 0; i < queries; ++i) work.num_pairs += static_cast<double>(rows - i);
  return work;
}

// By hand: products 2 x 128 x 512 x 256 a row or query, scores and sums 2 x 128 x 320 and x 1,088.
TEST(LatentCost, CountsProductsOfRowsOrOfQueriesAndPairs) {
  const LatentWork work = deepseek_v3(1000, 1);
  EXPECT_EQ(latent_cost(LatentForm::kNaive, work).flop, 33554432.0 * 1000 + 81920.0 * 1000);
  EXPECT_EQ(latent_cost(LatentForm::kAbsorbed, work).flop, 33554432.0 + 278528.0 * 1000);
  // Rows, weights in f32, and what is written and read again.
  EXPECT_EQ(latent_cost(LatentForm::kNaive, work).bytes,
            1152.0 * 1000 + 67108864.0 + 2 * 163840.0 * 1000);
  EXPECT_EQ(latent_cost(LatentForm::kAbsorbed, work).bytes,
            1152.0 * 1000 + 67108864.0 + 2 * 557056.0);
}

TEST(LatentCost, ADecodeIsAbsorbedAndAPromptIsNot) {
  EXPECT_EQ(cheaper_form(deepseek_v3(2, 1)), LatentForm::kAbsorbed);
  EXPECT_EQ(cheaper_form(deepseek_v3(65536, 1)), LatentForm::kAbsorbed);
  EXPECT_EQ(cheaper_form(deepseek_v3(4096, 4096)), LatentForm::kNaive);
  EXPECT_EQ(cheaper_form(deepseek_v3(32768, 512)), LatentForm::kNaive);
  // A few tokens onto a long cache: expanding all rows would cost more than it saves.
  EXPECT_EQ(cheaper_form(deepseek_v3(32768, 64)), LatentForm::kAbsorbed);
}

TEST(LatentAttention, RefusesWeightsOfAnotherShape) {
  LatentShape shape{.q_heads = 4, .latent_dim = 32, .rope_dim = 16, .nope_dim = 8, .v_dim = 8};
  CacheOptions options;
  options.context = 16;
  LatentCache cache(shape, "f16", options);
  std::vector<LatentSequence> batch = {cache.create()};
  cache.grow(batch[0], 5);
  const auto view = cache.view(batch);
  std::vector<float> w(4 * 8 * 32, 0.1f);
  std::vector<float> q(4 * 24, 1.0f);
  std::vector<float> out(4 * 8);
  LatentCall call;
  call.view = view->cache();
  call.num_heads = 4;
  call.weights = {std::span(w).first(w.size() - 1), w, 8, 8};
  call.q = q;
  call.out = out;
  AttentionRunner runner = *AttentionRunner::create({});
  const auto wrong = attend_latent(runner, call);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().message, "w_uk: found 1023 values, expected 4 x 8 x 32");
  call.weights.w_uk = w;
  call.form = LatentForm::kNaive;
  call.options.arith = Arith::kF16;
  const auto naive = attend_latent(runner, call);
  ASSERT_FALSE(naive.has_value());
  EXPECT_EQ(naive.error().code, ErrorCode::kUnsupported);
  call.options.arith = Arith::kAuto;
  call.form = LatentForm::kAuto;
  EXPECT_TRUE(attend_latent(runner, call).has_value());
}

}  // namespace
}  // namespace kvarto
