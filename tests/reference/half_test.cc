// Attention in f16 arithmetic against the double-precision reference, and what it refuses.

#include <gtest/gtest.h>

#include "attention/half_bound.h"
#include "attention/runner_state.h"
#include "reference/prefill_case.h"
#include "reference/tolerance.h"

namespace kvarto::test {
namespace {

bool has_half_kernels() {
  return supported_isas().back() == Isa::kAvx512 &&
         half_kernels(kernel_table(Isa::kAvx512)).has_value();
}

class Half : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_half_kernels()) GTEST_SKIP() << "this machine or compiler has no AVX512-FP16";
  }

  // Queries small enough that every shape is within the bound.
  static AttentionOptions options_for(const CaseShape& shape) {
    AttentionOptions options;
    options.arith = Arith::kF16;
    options.scale = 0.3f / std::sqrt(static_cast<float>(shape.qk_dim));
    return options;
  }

  double run(CacheCase& test, const AttentionOptions& options, std::uint32_t threads = 1) {
    RunnerState state(kernel_table(Isa::kAvx512), {.num_threads = threads});
    const auto report = decode_with(state, test.decode_call(options));
    EXPECT_TRUE(report.has_value()) << (report.has_value() ? "" : report.error().message);
    if (!report.has_value()) return INFINITY;
    EXPECT_EQ(report->isa, "avx512fp16");
    EXPECT_EQ(report->arith, "f16");
    return expect_matches_reference(test, options);
  }
  double run(PrefillCase& test, const AttentionOptions& options, std::uint32_t threads = 1) {
    RunnerState state(kernel_table(Isa::kAvx512), {.num_threads = threads});
    const auto report = prefill_with(state, test.call(options));
    EXPECT_TRUE(report.has_value()) << (report.has_value() ? "" : report.error().message);
    if (!report.has_value()) return INFINITY;
    EXPECT_EQ(report->isa, "avx512fp16");
    EXPECT_EQ(report->arith, "f16");
    return test.deviation(options);
  }

  // Expects that a decode is refused with `words` in its message and nothing is written.
  void expect_refused(CacheCase& test, const AttentionOptions& options, std::string_view words,
                      Isa isa = Isa::kAvx512) {
    RunnerState state(kernel_table(isa), {.num_threads = 1});
    const auto report = decode_with(state, test.decode_call(options));
    ASSERT_FALSE(report.has_value());
    EXPECT_EQ(report.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(report.error().message.find(words), std::string::npos) << report.error().message;
    for (const float x : test.out) ASSERT_TRUE(std::isnan(x));
    for (const float x : test.lse) ASSERT_TRUE(std::isnan(x));
  }
};

TEST_F(Half, MatchesTheReferenceForEveryHeadDim) {
  for (const std::uint32_t dim : {1u,  2u,  3u,  7u,  15u,  16u,  17u,  31u,  32u,  33u,  48u,
                                  63u, 64u, 72u, 80u, 100u, 112u, 128u, 192u, 255u, 256u, 512u}) {
    CaseShape shape;
    shape.qk_dim = dim;
    shape.v_dim = dim == 192 ? 128 : dim;
    shape.lengths = {77};
    shape.seed = dim;
    CacheCase test(shape);
    run(test, options_for(shape));
  }
}

TEST_F(Half, MatchesTheReferenceForEveryGroupSize) {
  for (const std::uint32_t group : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 12u, 16u, 31u, 32u}) {
    CaseShape shape;
    shape.q_heads = 2 * group;
    shape.lengths = {90, 5, 200};
    CacheCase test(shape);
    run(test, options_for(shape), group % 3 + 1);
  }
}

TEST_F(Half, MatchesTheReferenceForEveryLengthOfTheLastBlock) {
  for (const std::uint32_t rows_per_block : {16u, 48u, 64u}) {
    CaseShape shape;
    shape.rows_per_block = rows_per_block;
    shape.lengths.clear();
    for (std::uint64_t length = 0; length <= 3 * kChunkRows + 1; ++length) {
      shape.lengths.push_back(length);
    }
    CacheCase test(shape);
    run(test, options_for(shape));
  }
}

TEST_F(Half, AppliesEveryOption) {
  const std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  const std::vector<float> sinks = {0.5f, -2.0f, 3.0f, 0.0f};
  for (int i = 0; i < 8; ++i) {
    CaseShape shape;
    shape.lengths = {150, 64, 1, 0, 213};
    CacheCase test(shape);
    AttentionOptions options = options_for(shape);
    if (i == 0 || i == 7) options.soft_cap = 0.5f;
    if (i == 1 || i == 7) options.alibi_slopes = slopes;
    if (i == 2 || i == 7) options.window = 50;
    if (i == 3 || i == 7) options.chunk = 64;
    if (i == 4 || i == 7) options.sink_logits = sinks;
    if (i == 5) options.window = 1;
    run(test, options);
  }
}

TEST_F(Half, ReadsWhatForksShareOnce) {
  CaseShape shape;
  shape.lengths = {200, 150};
  CacheCase test(shape);
  // The second sequence begins with the blocks of the first.
  for (std::size_t i = 0; i < 6; ++i) test.tables[1][i] = test.tables[0][i];
  const std::size_t shared = std::size_t{6} * 16 * shape.kv_heads * shape.qk_dim;
  std::copy_n(test.k[0].begin(), shared, test.k[1].begin());
  std::copy_n(test.v[0].begin(), shared, test.v[1].begin());
  run(test, options_for(shape));
}

TEST_F(Half, StaysNearTheReferenceOnNormalData) {
  for (const std::uint32_t dim : {64u, 128u, 256u}) {
    CaseShape shape;
    shape.q_heads = 16;
    shape.qk_dim = shape.v_dim = dim;
    shape.lengths = {2000};
    CacheCase test(shape);
    AttentionOptions options;
    options.arith = Arith::kF16;
    // 1e-3 as a standard deviation; the largest of 16 x dim differences is three of them.
    EXPECT_LE(run(test, options), 3e-3);
  }
}

TEST_F(Half, KeepsWeightsOfRowsFarBelowTheMaximum) {
  // One row outweighs each of the others by 2^17, and all together by far less.
  CaseShape shape;
  shape.q_heads = shape.kv_heads = 1;
  shape.lengths = {4097};
  CacheCase test(shape);
  const std::vector<float> slopes = {12.0f / 64};
  AttentionOptions options = options_for(shape);
  options.alibi_slopes = slopes;
  run(test, options);
}

TEST_F(Half, RunsOnLargeValues) {
  CaseShape shape;
  shape.value_scale = 300;
  shape.lengths = {300};
  CacheCase test(shape);
  EXPECT_LE(run(test, options_for(shape)), 3e-3);
}

TEST_F(Half, PrefillMatchesTheReference) {
  for (const std::uint32_t group : {1u, 3u, 4u, 8u, 20u}) {
    CaseShape shape;
    shape.q_heads = 2 * group;
    shape.qk_dim = 40 + group;
    shape.v_dim = 33;
    shape.lengths = {150, 64, 0, 71};
    PrefillCase test(shape, {150, 3, 0, 40});
    AttentionOptions options = options_for(shape);
    if (group == 3) options.window = 17;
    if (group == 4) options.chunk = 32;
    if (group == 8) options.soft_cap = 0.5f;
    run(test, options, group % 2 + 1);
  }
}

TEST_F(Half, MatchesTheReferenceOnRandomShapes) {
  std::mt19937_64 random(20260602);
  const auto pick = [&](std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
  };
  for (int i = 0; i < 60; ++i) {
    CaseShape shape;
    shape.kv_heads = static_cast<std::uint32_t>(pick(1, 4));
    shape.q_heads = shape.kv_heads * static_cast<std::uint32_t>(pick(1, 9));
    shape.qk_dim = static_cast<std::uint32_t>(pick(8, 160));
    shape.v_dim = static_cast<std::uint32_t>(pick(1, 160));
    shape.rows_per_block = static_cast<std::uint32_t>(16 * pick(1, 4));
    shape.v_order = static_cast<RowOrder>(pick(0, 1));
    shape.lengths.clear();
    for (std::uint64_t n = pick(1, 4); n > 0; --n) shape.lengths.push_back(pick(0, 300));
    shape.seed = static_cast<std::uint64_t>(i);
    CacheCase test(shape);
    run(test, options_for(shape), static_cast<std::uint32_t>(pick(1, 4)));
  }
}

// --- Refusals
// --------------------------------------------------------------------------------------

TEST_F(Half, RefusesKeysWithLargeChannels) {
  CaseShape shape;
  shape.qk_dim = shape.v_dim = 128;
  shape.lengths = {200};
  shape.has_outliers = true;
  CacheCase test(shape);
  AttentionOptions options;
  options.arith = Arith::kF16;
  expect_refused(test, options, "limit 2.5e-03");
}

TEST_F(Half, RefusesLargeQueries) {
  CaseShape shape;
  shape.qk_dim = shape.v_dim = 128;
  CacheCase test(shape);
  for (float& x : test.q) x *= 4;
  AttentionOptions options;
  options.arith = Arith::kF16;
  expect_refused(test, options, "scores of query head 0");
}

TEST_F(Half, RefusesOneLargeRowAmongMany) {
  CaseShape shape;
  shape.qk_dim = shape.v_dim = 128;
  shape.key_scale = 30;
  shape.lengths = {1};
  CacheCase large(shape);
  shape.key_scale = 1;
  shape.lengths = {2000};
  CacheCase test(shape);
  // Both views as one cache that has written all rows.
  ElementSquares squares(shape.kv_heads, shape.qk_dim);
  const KernelTable& kernels = kernel_table(Isa::kScalar);
  for (const CacheCase* each : {&test, &large, &test}) {
    squares.add(
        {std::as_bytes(std::span(each->k[0])).data(), Element::kF32, each->shape.lengths[0]},
        kernels);
  }
  DecodeCall call = test.decode_call();
  call.options.arith = Arith::kF16;
  call.view.k.squares = squares.view();
  RunnerState state(kernel_table(Isa::kAvx512), {.num_threads = 1});
  const auto report = decode_with(state, call);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kUnsupported);
}

TEST_F(Half, RefusesWhatIsNotFinite) {
  CaseShape shape;
  CacheCase test(shape);
  AttentionOptions options = options_for(shape);
  test.q[5] = NAN;
  expect_refused(test, options, "scores of query head 0");
  test.q[5] = 1e30f;
  expect_refused(test, options, "scores of query head 0");
  shape.value_scale = 20000;
  CacheCase large(shape);
  expect_refused(large, options, "values of KV head 0");
}

TEST_F(Half, RefusesQueriesThatLeaveTheRangeOverKeysOfZero) {
  CaseShape shape;
  shape.key_scale = 0;
  CacheCase test(shape);
  test.q[0] = 1e6f;
  expect_refused(test, options_for(shape), "scores of query head 0");
}

TEST_F(Half, RefusesOtherCodecsLayoutsAndInstructionSets) {
  CaseShape shape;
  AttentionOptions options = options_for(shape);
  shape.codec = Codec::kBF16;
  CacheCase bf16(shape);
  expect_refused(bf16, options, "found bf16 in k");
  shape.codec = Codec::kF32;
  CacheCase f32(shape);
  expect_refused(f32, options, "found f32 in k");
  shape.codec = Codec::kF16;
  CacheCase tiles(shape);
  expect_refused(tiles, options, "avx2", Isa::kAvx2);
  expect_refused(tiles, options, "scalar", Isa::kScalar);
  shape.k_order = RowOrder::kHeadRow;
  CacheCase rows(shape);
  expect_refused(rows, options, "expected the hardware layout");
}

TEST_F(Half, RefusesACacheThatKeepsNoSquares) {
  CacheCase test(CaseShape{});
  DecodeCall call = test.decode_call(options_for(test.shape));
  call.view.v.squares = {};
  RunnerState state(kernel_table(Isa::kAvx512), {.num_threads = 1});
  const auto report = decode_with(state, call);
  ASSERT_FALSE(report.has_value());
  EXPECT_NE(report.error().message.find("CacheOptions::keeps_squares"), std::string::npos);
}

TEST(HalfBound, CountsTheRoundingsOfEveryElement) {
  // One chain: the query's rounding and the sums from the element on.
  const std::vector<float> one = half_roundings(16);
  EXPECT_EQ(one.front(), 17);
  EXPECT_EQ(one.back(), 2);
  // Four chains: the first is in all three sums of the total, the last in one.
  const std::vector<float> many = half_roundings(72);
  EXPECT_EQ(many[0], 20);
  EXPECT_EQ(many[15], 5);
  EXPECT_EQ(many[16], 20);
  EXPECT_EQ(many[31], 5);
  EXPECT_EQ(many[32], 19);
  EXPECT_EQ(many[48], 18);
  EXPECT_EQ(many[63], 3);
  EXPECT_EQ(many[64], 9);  // a total of a single chain of 8
  EXPECT_EQ(many[71], 2);
}

TEST(HalfBound, CountsTheRoundingsOfRowsReadAlongTheirElements) {
  // The query, chains of 18 products, four rounds of sums over the lanes.
  const std::vector<float> latent = half_row_roundings(576);
  EXPECT_EQ(latent[0], 1 + 18 + 4);
  EXPECT_EQ(latent[31], 1 + 18 + 4);
  EXPECT_EQ(latent[32], 1 + 17 + 4);
  EXPECT_EQ(latent[575], 1 + 1 + 4);
  // A chain of one product, and a second one of lanes that are not all there.
  EXPECT_EQ(half_row_roundings(20).back(), 6);
  EXPECT_EQ(half_row_roundings(33)[0], 7);
  EXPECT_EQ(half_row_roundings(33)[32], 6);
}

}  // namespace
}  // namespace kvarto::test
