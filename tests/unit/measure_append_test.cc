#include "kvarto/measure_append.h"

#include <gtest/gtest.h>

#include "cache_models.h"

namespace kvarto {
namespace {

TEST(MeasureAppend, CountsTheBytesThatAStepWrites) {
  AppendCase request;
  request.model = dense_model(2, 16, Codec::kF16, 3);
  request.options.context = 100;
  request.options.num_sequences = 2;
  request.kv_len = 40;
  request.runs = 7;
  request.warm_up_runs = 1;
  const auto timing = measure_append(request);
  ASSERT_TRUE(timing) << timing.error().message;
  EXPECT_EQ(timing->step_s.size(), 7u);
  // 2 sequences x 3 layers x (K and V) x 2 heads x 16 elements x 2 bytes.
  EXPECT_EQ(timing->bytes_per_step, 2u * 3 * 2 * 2 * 16 * 2);
  for (std::size_t i = 0; i < timing->step_s.size(); ++i) {
    EXPECT_GE(timing->step_s[i], timing->reserve_s[i]);
  }
}

// A row of 4 tokens is born in every second step of 2, and the widest of f16's roundings is 2^-11
// of a number.
TEST(MeasureAppend, WritesRowsWhenTheyAreBornAndReadsThemBack) {
  AppendCase request;
  request.model = model_of({plain_stream("compressed", {}, 4)});
  request.model.groups[0].streams[0].fields[0].codec = Codec::kF16;
  request.options.context = 100;
  request.tokens_per_step = 2;
  request.runs = 10;
  request.warm_up_runs = 2;
  const auto timing = measure_append(request);
  ASSERT_TRUE(timing) << timing.error().message;
  EXPECT_EQ(timing->bytes_per_step, 2u);  // half a row of 2 f16 elements
  EXPECT_GT(timing->max_rel_error, 0);
  EXPECT_LE(timing->max_rel_error, 0x1p-11);
}

TEST(MeasureAppend, ReportsWhatOneLayerWrites) {
  AttentionBench bench;
  bench.kv_heads = 2;
  bench.qk_dim = 32;
  bench.v_dim = 16;
  bench.k_codec = Codec::kBF16;
  bench.v_codec = Codec::kBF16;
  bench.kv_len = 64;
  bench.q_len = 3;
  bench.seconds = 0.001;
  const auto report = measure_append(bench);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->unique_kv_bytes, 3u * 2 * (32 + 16) * 2);
  EXPECT_EQ(report->flop_fraction(), 0);
  EXPECT_LE(report->max_rel_error, 0x1p-8);
}

TEST(MeasureAppend, RefusesMoreRunsThanTheContextHolds) {
  AppendCase request;
  request.model = dense_model(1, 16, Codec::kF16);
  request.options.context = 100;
  request.kv_len = 90;
  const auto timing = measure_append(request);
  ASSERT_FALSE(timing);
  EXPECT_EQ(timing.error().code, ErrorCode::kInvalidArgument);
}

TEST(MeasureBookkeeping, CountsTwelveBytesABlock) {
  const auto timing = measure_bookkeeping(dense_model(1, 1, Codec::kF16), 10'000, 16);
  ASSERT_TRUE(timing) << timing.error().message;
  EXPECT_EQ(timing->num_tokens, 10'000u);
  EXPECT_EQ(timing->metadata_bytes_per_block, 12.0);
  EXPECT_GT(timing->r_squared, 0.0);
  EXPECT_LE(timing->r_squared, 1.0 + 1e-9);
}

}  // namespace
}  // namespace kvarto
