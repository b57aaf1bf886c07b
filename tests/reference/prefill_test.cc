// Causal prefill of every instruction set against the double-precision reference.

#include <gtest/gtest.h>

#include "attention/runner_state.h"
#include "reference/prefill_case.h"
#include "reference/tolerance.h"

namespace kvarto::test {
namespace {

class Prefill : public testing::TestWithParam<Isa> {
 protected:
  double run(PrefillCase& test, const AttentionOptions& options = {}, std::uint32_t threads = 1) {
    RunnerState state(kernel_table(GetParam()), {.num_threads = threads});
    const auto report = prefill_with(state, test.call(options));
    EXPECT_TRUE(report.has_value()) << (report.has_value() ? "" : report.error().message);
    if (!report.has_value()) return INFINITY;
    EXPECT_EQ(report->isa, isa_name(GetParam()));
    return test.deviation(options);
  }
};

CaseShape shape_of(RowOrder k_order, Codec codec) {
  CaseShape shape;
  shape.k_order = k_order;
  shape.v_order = k_order == RowOrder::kRowHead ? RowOrder::kRowHead : RowOrder::kHeadRow;
  shape.codec = codec;
  return shape;
}

TEST_P(Prefill, MatchesTheReferenceForEveryOrderAndCodec) {
  for (const RowOrder order : {RowOrder::kHeadTiles, RowOrder::kHeadRow, RowOrder::kRowHead}) {
    for (const Codec codec : {Codec::kF32, Codec::kF16, Codec::kBF16}) {
      CaseShape shape = shape_of(order, codec);
      shape.lengths = {70, 1, 0, 33};
      PrefillCase test(shape, {70, 1, 0, 33});
      EXPECT_LE(run(test), kPromisedError);
    }
  }
}

TEST_P(Prefill, ContinuesOntoAnExistingCache) {
  CaseShape shape = shape_of(RowOrder::kHeadTiles, Codec::kF16);
  shape.lengths = {150, 64, 200};
  PrefillCase test(shape, {20, 0, 1});
  EXPECT_LE(run(test, {}, 3), kPromisedError);
}

TEST_P(Prefill, AppliesWindowsChunksSinksAndBiases) {
  const std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  const std::vector<float> sinks = {0.5f, -2.0f, 3.0f, 0.0f};
  std::vector<AttentionOptions> all(5);
  all[0].window = 17;
  all[1].chunk = 32;
  all[2].sink_logits = sinks;
  all[3].alibi_slopes = slopes;
  all[4] = {.soft_cap = 3.0f, .alibi_slopes = slopes, .window = 40, .sink_logits = sinks};
  for (const AttentionOptions& options : all) {
    for (const RowOrder order : {RowOrder::kHeadTiles, RowOrder::kRowHead}) {
      CaseShape shape = shape_of(order, Codec::kBF16);
      shape.lengths = {90};
      PrefillCase test(shape, {75});
      EXPECT_LE(run(test, options), kPromisedError);
    }
  }
}

TEST_P(Prefill, MatchesTheReferenceForOddDimsAndGroups) {
  for (const std::uint32_t group : {1u, 3u, 7u, 20u, 70u}) {
    CaseShape shape =
        shape_of(group % 2 == 0 ? RowOrder::kHeadTiles : RowOrder::kHeadRow, Codec::kF16);
    shape.q_heads = group;
    shape.kv_heads = 1;
    shape.qk_dim = 21 + group;
    shape.v_dim = 33;
    shape.lengths = {40};
    PrefillCase test(shape, {30});
    EXPECT_LE(run(test, {}, 2), kPromisedError) << group;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Prefill,
                         testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

}  // namespace
}  // namespace kvarto::test
