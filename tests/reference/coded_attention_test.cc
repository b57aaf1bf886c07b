// Decode and prefill over tiles of integer codes, in integers and in f32, of every instruction set,
// against the double-precision reference of the decoded values.

#include <gtest/gtest.h>

#include <numeric>

#include "attention/runner_state.h"
#include "base/code_format.h"
#include "reference/coded_case.h"

namespace kvarto::test {
namespace {

constexpr Codec kCodes[] = {Codec::kInt8, Codec::kQ8_0, Codec::kInt4, Codec::kQ4_0};

struct Arithmetic {
  Arith arith;
  std::uint32_t query_bits;
};
constexpr Arithmetic kArithmetics[] = {{Arith::kInt8, 16}, {Arith::kInt8, 8}, {Arith::kF32, 16}};

class CodedAttention : public testing::TestWithParam<Isa> {
 protected:
  const KernelTable& kernels = kernel_table(GetParam());

  // Compares all queries and returns max |difference| / max |reference|.
  double decode(const CodedCase& test, const AttentionOptions& options,
                std::uint32_t num_threads = 1) {
    const CodedShape& shape = test.shape;
    const std::size_t num = shape.lengths.size();
    const std::vector<float> q = test.queries(num, shape.seed + 1);
    std::vector<float> out(num * shape.q_heads * shape.v_dim, NAN);
    std::vector<float> lse(num * shape.q_heads, NAN);
    RunnerState state(kernels, {.num_threads = num_threads});
    DecodeCall call{test.view(), shape.q_heads, q, options, out, lse};
    const auto report = decode_with(state, call);
    EXPECT_TRUE(report.has_value()) << (report.has_value() ? "" : report.error().message);
    if (!report.has_value()) return INFINITY;
    expect_report(*report, options);
    CodedDeviation deviation;
    for (std::size_t s = 0; s < num; ++s) {
      for (std::uint32_t head = 0; head < shape.q_heads; ++head) {
        const std::size_t row = s * shape.q_heads + head;
        const CodedResult result{s,
                                 head,
                                 shape.lengths[s] - 1,
                                 std::span(q).subspan(row * shape.qk_dim, shape.qk_dim),
                                 std::span(out).subspan(row * shape.v_dim, shape.v_dim),
                                 lse[row]};
        expect_within_bound(test, result, options, *report, deviation);
      }
    }
    return deviation.relative();
  }

  double prefill(const CodedCase& test, const std::vector<std::uint64_t>& q_lens,
                 const AttentionOptions& options) {
    const CodedShape& shape = test.shape;
    const std::uint64_t num = std::accumulate(q_lens.begin(), q_lens.end(), std::uint64_t{0});
    const std::vector<float> q = test.queries(num, shape.seed + 1);
    std::vector<float> out(num * shape.q_heads * shape.v_dim, NAN);
    std::vector<float> lse(num * shape.q_heads, NAN);
    RunnerState state(kernels, {.num_threads = 2});
    PrefillCall call{test.view(), q_lens, shape.q_heads, q, options, out, lse};
    const auto report = prefill_with(state, call);
    EXPECT_TRUE(report.has_value()) << (report.has_value() ? "" : report.error().message);
    if (!report.has_value()) return INFINITY;
    expect_report(*report, options);
    CodedDeviation deviation;
    std::size_t row = 0;
    for (std::size_t s = 0; s < q_lens.size(); ++s) {
      for (std::uint64_t i = 0; i < q_lens[s]; ++i) {
        for (std::uint32_t head = 0; head < shape.q_heads; ++head, ++row) {
          const CodedResult result{s,
                                   head,
                                   shape.lengths[s] - q_lens[s] + i,
                                   std::span(q).subspan(row * shape.qk_dim, shape.qk_dim),
                                   std::span(out).subspan(row * shape.v_dim, shape.v_dim),
                                   lse[row]};
          expect_within_bound(test, result, options, *report, deviation);
        }
      }
    }
    return deviation.relative();
  }

  void expect_report(const AttentionReport& report, const AttentionOptions& options) {
    EXPECT_EQ(report.arith, arith_name(options.arith));
    EXPECT_EQ(report.query_bits, options.arith == Arith::kInt8 ? options.query_bits : 0);
    EXPECT_EQ(report.isa, options.arith == Arith::kInt8 ? kernels.codes.isa : kernels.name);
    EXPECT_EQ(report.layout, "hardware");
  }
};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

AttentionOptions with(const Arithmetic& arithmetic, AttentionOptions options = {}) {
  options.arith = arithmetic.arith;
  options.query_bits = arithmetic.query_bits;
  return options;
}

// On normal data; what the rounding of 8-bit queries adds is the largest by far.
double promise(const Arithmetic& arithmetic) { return arithmetic.query_bits == 8 ? 3e-2 : 1e-3; }

TEST_P(CodedAttention, MatchesTheReferenceForEveryCodecBlockAndArithmetic) {
  for (const Codec codec : kCodes) {
    for (const std::uint32_t rows_per_block : {16u, 48u, 64u}) {
      for (const Arithmetic& arithmetic : kArithmetics) {
        CodedShape shape;
        shape.k = shape.v = codec;
        shape.rows_per_block = rows_per_block;
        shape.lengths = {1, 33, 0, 200};
        const CodedCase test(shape, kernels);
        EXPECT_LE(decode(test, with(arithmetic)), promise(arithmetic))
            << codec_info(codec).name << " " << arithmetic.query_bits;
      }
    }
  }
}

TEST_P(CodedAttention, MatchesTheReferenceForMixedTypes) {
  constexpr std::pair<Codec, Codec> kPairs[] = {
      {Codec::kQ8_0, Codec::kF16},  {Codec::kF32, Codec::kQ4_0},  {Codec::kInt4, Codec::kQ8_0},
      {Codec::kQ4_0, Codec::kInt8}, {Codec::kQ5_0, Codec::kInt8}, {Codec::kInt8, Codec::kQ5_1},
      {Codec::kBF16, Codec::kInt4}};
  for (const auto& [k, v] : kPairs) {
    for (const Arithmetic& arithmetic : kArithmetics) {
      CodedShape shape;
      shape.k = k;
      shape.v = v;
      shape.lengths = {150, 7};
      const CodedCase test(shape, kernels);
      EXPECT_LE(decode(test, with(arithmetic)), promise(arithmetic))
          << codec_info(k).name << " " << codec_info(v).name;
      EXPECT_LE(prefill(test, {20, 7}, with(arithmetic)), promise(arithmetic));
    }
  }
}

TEST_P(CodedAttention, MatchesTheReferenceForEveryHeadDim) {
  for (const std::uint32_t dim : {16u, 32u, 48u, 80u, 96u, 112u, 128u, 144u, 192u, 256u, 512u}) {
    for (const Codec codec : kCodes) {
      if (!code_format(codec, dim).has_value()) continue;
      CodedShape shape;
      shape.k = shape.v = codec;
      shape.qk_dim = dim;
      shape.v_dim = dim == 192 ? 128 : dim;
      shape.lengths = {77};
      const CodedCase test(shape, kernels);
      EXPECT_LE(decode(test, with(kArithmetics[0])), promise(kArithmetics[0])) << dim;
      decode(test, with(kArithmetics[2]));
    }
  }
}

TEST_P(CodedAttention, MatchesTheReferenceForEveryGroupSizeAndFork) {
  for (const std::uint32_t group : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 16u, 31u}) {
    for (const Codec codec : kCodes) {
      CodedShape shape;
      shape.k = shape.v = codec;
      shape.q_heads = 2 * group;
      shape.lengths = {130, 145, 64, 200};
      shape.shared_blocks = group % 2 == 0 ? 4 : 0;
      const CodedCase test(shape, kernels);
      EXPECT_LE(decode(test, with(kArithmetics[0]), 1 + group % 3), promise(kArithmetics[0]))
          << group;
    }
  }
}

TEST_P(CodedAttention, AppliesEveryOption) {
  const std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  const std::vector<float> sinks = {0.5f, -2.0f, 3.0f, 0.0f};
  std::vector<AttentionOptions> all(7);
  all[0].scale = 0.3f;
  all[1].soft_cap = 2.0f;
  all[2].alibi_slopes = slopes;
  all[3].window = 50;
  all[4].chunk = 64;
  all[5].sink_logits = sinks;
  all[6] = {.scale = 0.2f,
            .soft_cap = 5.0f,
            .alibi_slopes = slopes,
            .window = 70,
            .chunk = 128,
            .sink_logits = sinks};
  for (const AttentionOptions& options : all) {
    for (const Codec codec : kCodes) {
      CodedShape shape;
      shape.k = shape.v = codec;
      shape.lengths = {150, 64, 1, 0, 213};
      CodedCase test(shape, kernels);
      // What a window or a chunk hides is never looked at, though it shares tiles.
      const RowRange visible = {options.window == 0 ? 0 : 213 - options.window, 213};
      for (std::uint64_t row = 0; row < visible.first; ++row) test.poison(4, row);
      EXPECT_LE(decode(test, with(kArithmetics[0], options)), 1e-3) << codec_info(codec).name;
      EXPECT_LE(prefill(test, {40, 64, 1, 0, 1}, with(kArithmetics[0], options)), 1e-3);
    }
  }
}

TEST_P(CodedAttention, KeepsItsBoundOnOutliers) {
  for (const Codec codec : kCodes) {
    for (const Arithmetic& arithmetic : kArithmetics) {
      CodedShape shape;
      shape.k = shape.v = codec;
      shape.qk_dim = shape.v_dim = 128;
      shape.lengths = {500, 63};
      shape.has_outliers = true;
      const CodedCase test(shape, kernels);
      const double error = decode(test, with(arithmetic));
      RecordProperty(std::string(codec_info(codec).name) + "_" +
                         std::string(arith_name(arithmetic.arith)) + "_" +
                         std::to_string(arithmetic.query_bits),
                     std::to_string(error));
      if (arithmetic.query_bits == 16) {
        EXPECT_LE(error, 1e-2) << codec_info(codec).name;
      }
    }
  }
}

TEST_P(CodedAttention, MatchesTheReferenceOnRandomShapes) {
  std::mt19937_64 random(20260605);
  const auto pick = [&](std::uint64_t low, std::uint64_t high) {
    return static_cast<std::uint32_t>(
        std::uniform_int_distribution<std::uint64_t>(low, high)(random));
  };
  for (std::uint64_t i = 0; i < 30; ++i) {
    CodedShape shape;
    shape.k = kCodes[pick(0, 3)];
    shape.v = kCodes[pick(0, 3)];
    shape.kv_heads = pick(1, 4);
    shape.q_heads = shape.kv_heads * pick(1, 9);
    shape.qk_dim = 32 * pick(1, 5);
    shape.v_dim = 32 * pick(1, 5);
    shape.rows_per_block = 16 * pick(1, 4);
    shape.lengths.clear();
    for (std::uint32_t n = pick(1, 4); n > 0; --n) shape.lengths.push_back(pick(0, 300));
    shape.shared_blocks = pick(0, 2);
    shape.seed = i;
    const CodedCase test(shape, kernels);
    decode(test, with(kArithmetics[pick(0, 2)]), pick(1, 4));
    std::vector<std::uint64_t> q_lens;
    for (const std::uint64_t length : shape.lengths) q_lens.push_back(pick(0, length) % 30);
    prefill(test, q_lens, with(kArithmetics[pick(0, 2)]));
  }
}

TEST_P(CodedAttention, AutoTakesIntegersWhereTheyAreFaster) {
  CodedShape shape;
  const CodedCase test(shape, kernels);
  const std::vector<float> q = test.queries(1, 2);
  std::vector<float> out(std::size_t{shape.q_heads} * shape.v_dim);
  RunnerState state(kernels, {});
  const DecodeCall call{test.view(), shape.q_heads, q, {}, out, {}};
  const auto report = decode_with(state, call);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->arith, kernels.codes.is_fast ? "int8" : "f32");
  EXPECT_EQ(report->kernel, kernels.codes.is_fast ? "dense_tiles" : "dense_tiles_fill_kv");
  const std::vector<std::uint64_t> q_lens(shape.lengths.size(), 1);
  const auto prefill =
      prefill_with(state, PrefillCall{test.view(), q_lens, shape.q_heads, q, {}, out, {}});
  ASSERT_TRUE(prefill.has_value());
  EXPECT_EQ(prefill->arith, kernels.codes.is_fast_in_prefill ? "int8" : "f32");
}

TEST_P(CodedAttention, SaysWhyIntegersCannotRun) {
  const auto message_of = [&](const CodedShape& shape, const AttentionOptions& options) {
    const CodedCase test(shape, kernels);
    const std::vector<float> q = test.queries(1, 2);
    std::vector<float> out(std::size_t{shape.q_heads} * shape.v_dim);
    RunnerState state(kernels, {});
    const auto report = decode_with(state, {test.view(), shape.q_heads, q, options, out, {}});
    return report.has_value() ? std::string() : report.error().message;
  };
  CodedShape generic;
  generic.layout = Layout::kGeneric;
  expect_contains(message_of(generic, {.arith = Arith::kInt8}), "in generic");
  CodedShape wide;
  wide.k = wide.v = Codec::kF16;
  expect_contains(message_of(wide, {.arith = Arith::kInt8}), "found f16 of 64");
  CodedShape odd;
  odd.rows_per_block = 8;
  expect_contains(message_of(odd, {.arith = Arith::kInt8}), "multiple of 16 tokens");
  expect_contains(message_of({}, {.arith = Arith::kF32, .query_bits = 8}),
                  "query_bits: found 8, but integer arithmetic");
  expect_contains(message_of({}, {.query_bits = 12}), "query_bits: found 12");
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, CodedAttention,
                         testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

}  // namespace
}  // namespace kvarto::test
