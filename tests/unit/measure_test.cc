#include "kvarto/measure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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
