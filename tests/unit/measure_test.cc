#include "kvarto/measure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kvarto/measure_sparse.h"
#include "kvarto/plan.h"
#include "profile/error_bound.h"

namespace kvarto {
namespace {

TEST(Timing, IsMedianP99AndSpread) {
  std::vector<double> seconds;
  for (int i = 1; i <= 101; ++i) seconds.push_back(i * 1e-6);  // 1 to 101 microseconds
  const Timing timing = summarise(seconds);
  EXPECT_NEAR(timing.median_us, 51, 1e-9);
  EXPECT_NEAR(timing.p99_us, 100, 1e-9);
  EXPECT_NEAR(timing.stddev_us, std::sqrt((101.0 * 101 - 1) / 12), 1e-6);  // of 101 equal steps
  EXPECT_EQ(timing.runs, 101u);
}

AttentionBench small() {
  AttentionBench bench;
  bench.q_heads = 4;
  bench.kv_heads = 2;
  bench.qk_dim = bench.v_dim = 64;
  bench.kv_len = 300;
  bench.seconds = 0.01;
  return bench;
}

// K and V x heads x elements x bytes of one token of small().
constexpr std::uint64_t kTokenBytes = 2 * 2 * 64 * 2;

TEST(Measure, CountsABatchOfForksOnce) {
  AttentionBench bench = small();
  bench.batch = 8;
  bench.batch_kind = BenchBatch::kForked;
  const auto report = measure_decode(bench);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->unique_kv_bytes, 300 * kTokenBytes);
  EXPECT_EQ(report->rows_read, 300u);
  EXPECT_EQ(report->heads_checked, 32u);
  EXPECT_LE(report->max_rel_error, 1e-3);
}

TEST(Measure, SpreadsARaggedBatchFromOneTokenToAll) {
  AttentionBench bench = small();
  bench.batch = 3;
  bench.batch_kind = BenchBatch::kRagged;
  const auto report = measure_decode(bench);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->rows_read, 1u + 150 + 300);
  EXPECT_LE(report->max_rel_error, 1e-3);
}

TEST(Measure, KeepsItsErrorOnOutliers) {
  AttentionBench bench = small();
  bench.content = BenchContent::kOutlier;
  bench.k_codec = Codec::kBF16;
  bench.v_codec = Codec::kBF16;
  const auto report = measure_prefill(bench);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_LE(report->max_rel_error, 1e-3);
  EXPECT_GT(report->machine_gflop_per_s, 0);
  EXPECT_GT(report->gflop_per_s, 0);
}

TEST(Measure, StaysBelowTheBoundOfItsArithmetic) {
  struct Type {
    Codec codec;
    std::uint32_t query_bits;
  };
  double previous = 0;
  for (const Type type : {Type{Codec::kF16, 16}, {Codec::kInt8, 16}, {Codec::kInt8, 8}}) {
    AttentionBench bench = small();
    bench.k_codec = bench.v_codec = type.codec;
    bench.query_bits = type.query_bits;
    if (type.codec == Codec::kInt8) bench.arith = Arith::kInt8;
    const auto report = measure_decode(bench);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    ASSERT_TRUE(report->error_bound.has_value());
    EXPECT_LE(report->max_rel_error, *report->error_bound);
    EXPECT_GT(*report->error_bound, previous) << "each of these rounds more than the one before";
    previous = *report->error_bound;
  }
}

// Two rows of equal weight, values (1, -1) and (3, -1): the mean is (2, -1).
TEST(ErrorBound, FollowsFromTheSpreadOfValuesAroundTheirMean) {
  const std::vector<float> q = {2, -4};
  const std::vector<float> k = {0.5f, 0, 1.5f, 0.5f};  // both times q: 1
  const std::vector<float> v = {1, -1, 3, -1};
  ReferenceCall call;
  call.q = q;
  call.k = k;
  call.v = v;
  call.qk_dim = call.v_dim = 2;
  call.end_row = 2;
  const HeadMagnitudes head = magnitudes_of(call, reference_attention(call));
  EXPECT_EQ(head.query, 4);
  EXPECT_EQ(head.dot, 2 * 1.5 + 4 * 0.5);
  EXPECT_EQ(head.square, 9 + 4);
  EXPECT_EQ(head.key_sum, 2);
  EXPECT_EQ(head.value, 3);
  EXPECT_NEAR(head.mean, 2, 1e-12);
  EXPECT_NEAR(head.spread, 1, 1e-12);
  EXPECT_NEAR(head.independent_spread, std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(head.chunk_mean, 2, 1e-12);
}

// (exp(1/8 x 1 x 64 / 127) - 1) x 1/2 from queries of 8 bits, 32/32639 x 3 from weights and values;
// what f32 adds is below 2e-5.
TEST(ErrorBound, OfIntegersFollowsFromTheRoundingOfQueriesAndWeights) {
  const HeadMagnitudes head{.dim = 64,
                            .rows = 10,
                            .scale = 0.125,
                            .query = 1,
                            .dot = 1,
                            .square = 1,
                            .key_sum = 64,
                            .value = 3,
                            .mean = 1,
                            .spread = 0.5};
  const double keys = (std::exp(8.0 / 127) - 1) / 2;
  EXPECT_NEAR(keys, 0.03251, 1e-5);
  EXPECT_NEAR(output_error_bound(head, {.has_integer_keys = true, .query_bits = 8}), keys, 2e-5);
  EXPECT_NEAR(output_error_bound(head, {.has_integer_values = true}), 3 * 32.0 / 32639, 2e-5);
  EXPECT_LT(output_error_bound(head, {}), 2e-5);
}

// 37 query tokens onto 3: the first 16 read the index keys of 19 tokens together, the next 16 those
// of 35, the last 5 those of 40. Each sees its own, and selects at most 8 rows.
TEST(Measure, PlansAReadingOfIndexKeysForSixteenTokensOfAPrefill) {
  SparseBench bench;
  WhatIfDefaults shape;
  shape.q_heads = 4;
  shape.kv_heads = 1;
  shape.index_heads = 4;
  bench.model = *with_types(*geometry_model("dsa:8", shape, 1), {"f16", "f16", ""});
  bench.kv_len = 40;
  bench.q_len = 37;
  bench.batch = 2;
  bench.seconds = 0.01;
  const auto report = measure_sparse(bench);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->planned_index.rows_read, 2u * (19 + 35 + 40));
  EXPECT_EQ(report->index_reads.rows_read, report->planned_index.rows_read);
  EXPECT_EQ(report->planned_index.bytes_read, 2u * 94 * 132);
  EXPECT_EQ(report->index_reads.bytes_read, report->planned_index.bytes_read);
  EXPECT_EQ(report->planned_index.rows, 2u * 814);
  EXPECT_EQ(report->index_reads.rows, 2u * 814);
  EXPECT_EQ(report->planned.rows_read, 2u * (4 + 5 + 6 + 7 + 33 * 8));
  EXPECT_EQ(report->reads.rows_read, report->planned.rows_read);
  EXPECT_EQ(report->planned_bytes(), 2u * (94 * 132 + 286 * 1152));
  EXPECT_LE(report->max_rel_error, report->error_bound);
  EXPECT_GE(report->unique_kv_bytes, 2u * (40 * 132 + 8 * 1152));
  EXPECT_LE(report->unique_kv_bytes, 2u * (40 * 132 + 40 * 1152));
}

TEST(Measure, RefusesAForkedPrefill) {
  AttentionBench bench = small();
  bench.q_len = 2;
  bench.batch_kind = BenchBatch::kForked;
  EXPECT_FALSE(measure_prefill(bench).has_value());
}

TEST(Measure, ReportsEveryPointOfTheMachineThatWasAsked) {
  MachineBench bench;
  bench.working_sets_bytes = {1 << 16, 1 << 20};
  bench.threads = {1, 2};
  bench.seconds_per_point = 0.002;
  const auto report = measure_machine(bench);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->bandwidth.size(), 2u * 2 * 2);  // sets x threads x page sizes
  for (const BandwidthPoint& point : report->bandwidth) EXPECT_GT(point.gb_per_s, 0);
  ASSERT_FALSE(report->peaks.empty());
  EXPECT_EQ(report->peaks.front().name, "f32 fma");
  bench.working_sets_bytes = {100};
  EXPECT_FALSE(measure_machine(bench).has_value());
}

}  // namespace
}  // namespace kvarto
