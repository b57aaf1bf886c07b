// Decode of every instruction set against the double-precision reference.

#include <gtest/gtest.h>

#include "attention/runner_state.h"
#include "reference/cache_case.h"
#include "reference/tolerance.h"

namespace kvarto::test {
namespace {

class Decode : public testing::TestWithParam<Isa> {
 protected:
  // Runs the case and compares; returns the relative error.
  double run(CacheCase& test, const AttentionOptions& options = {}, std::uint32_t threads = 1) {
    RunnerState state(kernel_table(GetParam()), {.num_threads = threads});
    const auto report = decode_with(state, test.decode_call(options));
    EXPECT_TRUE(report.has_value()) << (report.has_value() ? "" : report.error().message);
    if (!report.has_value()) return INFINITY;
    EXPECT_EQ(report->isa, isa_name(GetParam()));
    return expect_matches_reference(test, options);
  }
};

// The three orders of a block that a user can ask for: keys, values, block size in tokens.
struct Orders {
  RowOrder k;
  RowOrder v;
  std::uint32_t rows_per_block;
};
constexpr Orders kOrders[] = {
    {RowOrder::kHeadTiles, RowOrder::kHeadRow, 16}, {RowOrder::kHeadTiles, RowOrder::kHeadRow, 64},
    {RowOrder::kHeadRow, RowOrder::kHeadRow, 16},   {RowOrder::kRowHead, RowOrder::kRowHead, 16},
    {RowOrder::kRowHead, RowOrder::kRowHead, 1},    {RowOrder::kHeadRow, RowOrder::kHeadRow, 7},
    {RowOrder::kHeadTiles, RowOrder::kHeadRow, 48},
};
constexpr Codec kCodecs[] = {Codec::kF32, Codec::kF16, Codec::kBF16};

TEST_P(Decode, MatchesTheReferenceForEveryOrderAndCodec) {
  for (const Orders& orders : kOrders) {
    for (const Codec codec : kCodecs) {
      CaseShape shape;
      shape.codec = codec;
      shape.k_order = orders.k;
      shape.v_order = orders.v;
      shape.rows_per_block = orders.rows_per_block;
      shape.lengths = {1, 33, 0, 200};
      CacheCase test(shape);
      EXPECT_LE(run(test), kPromisedError);
    }
  }
}

TEST_P(Decode, MatchesTheReferenceForEveryHeadDim) {
  for (const std::uint32_t dim : {1u,  2u,  3u,  7u,   8u,   15u,  16u,  17u,  24u,  31u,  40u, 64u,
                                  72u, 80u, 96u, 100u, 112u, 128u, 192u, 255u, 256u, 320u, 512u}) {
    for (const Orders& orders : {kOrders[0], kOrders[3]}) {
      CaseShape shape;
      shape.qk_dim = dim;
      shape.v_dim = dim == 192 ? 128 : dim;
      shape.codec = kCodecs[dim % 3];
      shape.k_order = orders.k;
      shape.v_order = orders.v;
      shape.lengths = {77};
      shape.seed = dim;
      CacheCase test(shape);
      EXPECT_LE(run(test), kPromisedError) << dim;
    }
  }
}

TEST_P(Decode, MatchesTheReferenceForEveryGroupSize) {
  for (const std::uint32_t group : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 12u, 15u, 16u, 31u, 32u}) {
    for (const Orders& orders : {kOrders[0], kOrders[2]}) {
      CaseShape shape;
      shape.q_heads = 2 * group;
      shape.k_order = orders.k;
      shape.v_order = orders.v;
      shape.codec = kCodecs[group % 3];
      shape.lengths = {90, 5};
      CacheCase test(shape);
      EXPECT_LE(run(test), kPromisedError) << group;
    }
  }
}

TEST_P(Decode, MatchesTheReferenceForEveryLengthOfTheLastBlock) {
  for (const Orders& orders : {kOrders[0], kOrders[3], kOrders[5]}) {
    CaseShape shape;
    shape.k_order = orders.k;
    shape.v_order = orders.v;
    shape.rows_per_block = orders.rows_per_block;
    shape.qk_dim = shape.v_dim = 16;
    shape.lengths.clear();
    for (std::uint64_t length = 1; length <= 3 * kChunkRows + 1; length += 3) {
      shape.lengths.push_back(length);
      shape.lengths.push_back(length + 64);
    }
    CacheCase test(shape);
    EXPECT_LE(run(test), kPromisedError);
  }
}

TEST_P(Decode, KeepsItsPromiseOnOutliers) {
  for (const Orders& orders : {kOrders[0], kOrders[3]}) {
    for (const Codec codec : kCodecs) {
      CaseShape shape;
      shape.codec = codec;
      shape.k_order = orders.k;
      shape.v_order = orders.v;
      shape.qk_dim = shape.v_dim = 128;
      shape.lengths = {500, 63};
      shape.has_outliers = true;
      CacheCase test(shape);
      EXPECT_LE(run(test), kPromisedError);
    }
  }
}

TEST_P(Decode, AppliesEveryOption) {
  const std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  const std::vector<float> sinks = {0.5f, -2.0f, 3.0f, 0.0f};
  std::vector<AttentionOptions> all(8);
  all[0].scale = 0.3f;
  all[1].soft_cap = 2.0f;
  all[2].alibi_slopes = slopes;
  all[3].window = 50;
  all[4].chunk = 64;
  all[5].sink_logits = sinks;
  all[6].window = 1;
  all[7] = {.scale = 0.2f,
            .soft_cap = 5.0f,
            .alibi_slopes = slopes,
            .window = 70,
            .chunk = 128,
            .sink_logits = sinks};
  for (const AttentionOptions& options : all) {
    for (const Orders& orders : {kOrders[0], kOrders[3], kOrders[5]}) {
      CaseShape shape;
      shape.k_order = orders.k;
      shape.v_order = orders.v;
      shape.rows_per_block = orders.rows_per_block;
      shape.lengths = {150, 64, 1, 0, 213};
      CacheCase test(shape);
      EXPECT_LE(run(test, options), kPromisedError);
    }
  }
}

// A large cap leaves scores as they are: what is lost near 0 would come back times the cap.
TEST_P(Decode, KeepsItsPromiseUnderEverySoftCap) {
  for (const float cap : {0.01f, 1.0f, 30.0f, 50.0f, 1e3f, 1e5f, 1e7f, 1e30f, 3e38f}) {
    CaseShape shape;
    shape.lengths = {300};
    CacheCase test(shape);
    AttentionOptions options;
    options.scale = 1.0f;  // scores of order 10
    options.soft_cap = cap;
    EXPECT_LE(run(test, options), 1e-5) << cap;
  }
}

TEST_P(Decode, MatchesTheReferenceOnRandomShapes) {
  std::mt19937_64 random(20260601);
  const auto pick = [&](std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
  };
  for (int i = 0; i < 60; ++i) {
    CaseShape shape;
    shape.kv_heads = static_cast<std::uint32_t>(pick(1, 4));
    shape.q_heads = shape.kv_heads * static_cast<std::uint32_t>(pick(1, 9));
    shape.qk_dim = static_cast<std::uint32_t>(pick(1, 160));
    shape.v_dim = static_cast<std::uint32_t>(pick(1, 160));
    shape.codec = kCodecs[pick(0, 2)];
    shape.k_order = static_cast<RowOrder>(pick(0, 2));
    shape.v_order = static_cast<RowOrder>(pick(0, 1));
    shape.rows_per_block = static_cast<std::uint32_t>(
        shape.k_order == RowOrder::kHeadTiles ? 16 * pick(1, 4) : pick(1, 64));
    shape.lengths.clear();
    for (std::uint64_t n = pick(1, 4); n > 0; --n) shape.lengths.push_back(pick(0, 300));
    shape.has_outliers = pick(0, 3) == 0;
    shape.seed = static_cast<std::uint64_t>(i);
    CacheCase test(shape);
    EXPECT_LE(run(test, {}, static_cast<std::uint32_t>(pick(1, 4))), kPromisedError) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Decode,
                         testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

}  // namespace
}  // namespace kvarto::test
