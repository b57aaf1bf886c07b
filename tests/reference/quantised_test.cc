// Attention over caches of every type, K and V each of its own, on every instruction set: against
// double precision over the numbers that the caches give back.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "attention/runner_state.h"
#include "cache_models.h"
#include "kernels/reference.h"
#include "reference/tolerance.h"

namespace kvarto::test {
namespace {

constexpr Codec kTypes[] = {Codec::kF16,         Codec::kFp8E4M3,      Codec::kFp8E5M2,
                            Codec::kQ8_0,        Codec::kQ5_1,         Codec::kQ5_0,
                            Codec::kQ4_1,        Codec::kQ4_0,         Codec::kIq4Nl,
                            Codec::kInt8,        Codec::kInt4,         Codec::kNvfp4,
                            Codec::kMxfp4,       Codec::kFp8Scaled128, Codec::kFp8Scaled64,
                            Codec::kFp8Scaled32, Codec::kBF16};

struct QuantisedShape {
  Codec k_codec = Codec::kQ8_0;
  Codec v_codec = Codec::kQ8_0;
  std::uint32_t kv_heads = 2;
  std::uint32_t group = 4;
  std::uint32_t qk_dim = 64;
  std::uint32_t v_dim = 64;
  Layout layout = Layout::kHardware;
  std::uint64_t block_size = 16;
  bool has_outliers = false;
  unsigned seed = 1;
};

// A cache of two sequences and the numbers in it.
class QuantisedCase {
 public:
  explicit QuantisedCase(const QuantisedShape& wanted)
      : shape(wanted), cache(*KvCache::create(model(), options())), random_(wanted.seed) {
    k_ = *cache.find_stream(0, "k");
    v_ = *cache.find_stream(0, "v");
    for (const std::uint64_t length : {std::uint64_t{1}, std::uint64_t{203}}) add(length);
  }

  [[nodiscard]] std::uint32_t q_heads() const { return shape.kv_heads * shape.group; }
  [[nodiscard]] LayerView view() const { return *cache.view(k_, v_, sequences); }

  std::vector<float> random_queries(std::uint64_t count) {
    std::vector<float> q(count * q_heads() * shape.qk_dim);
    for (float& x : q) x = normal_(random_) * (shape.has_outliers ? 4.0f : 1.0f);
    return q;
  }

  // Compares the output of one head of the query at `position` of sequence s.
  void expect_matches(std::size_t s, std::uint64_t position, std::uint32_t q_head,
                      std::span<const float> q, std::span<const float> out) const {
    const std::uint32_t head = q_head / shape.group;
    const std::vector<float> keys = rows_of(k[s], head, shape.qk_dim);
    const std::vector<float> values = rows_of(v[s], head, shape.v_dim);
    ReferenceCall call;
    call.q = q;
    call.k = keys;
    call.v = values;
    call.qk_dim = shape.qk_dim;
    call.v_dim = shape.v_dim;
    call.end_row = position + 1;
    call.scale = 1 / std::sqrt(static_cast<double>(shape.qk_dim));
    const ReferenceResult exact = reference_attention(call);
    double largest_dot = 0;
    double largest_v = 0;
    for (std::uint64_t row = 0; row <= position; ++row) {
      double dot = 0;
      for (std::uint32_t d = 0; d < shape.qk_dim; ++d) {
        dot += std::fabs(call.scale * double{q[d]} * double{keys[row * shape.qk_dim + d]});
      }
      largest_dot = std::max(largest_dot, dot);
    }
    for (const float x : values) largest_v = std::max(largest_v, std::fabs(double{x}));
    const double bound =
        output_tolerance({shape.qk_dim, position + 1, largest_dot, 0, 0}) * largest_v;
    for (std::uint32_t d = 0; d < shape.v_dim; ++d) {
      ASSERT_NEAR(double{out[d]}, exact.out[d], bound)
          << codec_info(shape.k_codec).name << "/" << codec_info(shape.v_codec).name;
    }
  }

  QuantisedShape shape;
  KvCache cache;
  std::vector<SequenceId> sequences;
  std::vector<std::vector<float>> k;  // as stored: [token][kv_heads][dim]
  std::vector<std::vector<float>> v;

 private:
  [[nodiscard]] ModelSpec model() const {
    ModelSpec model = dense_model(shape.kv_heads, shape.qk_dim, shape.k_codec);
    model.groups[0].streams[1].fields[0].width = shape.v_dim;
    model.groups[0].streams[1].fields[0].codec = shape.v_codec;
    return model;
  }
  [[nodiscard]] CacheOptions options() const {
    CacheOptions options;
    options.layout = shape.layout;
    options.block_size = shape.block_size;
    options.num_sequences = 2;
    options.context = 256;
    return options;
  }

  void add(std::uint64_t length) {
    const SequenceId sequence = *cache.create_sequence();
    sequences.push_back(sequence);
    ASSERT_TRUE(cache.append(sequence, length));
    k.push_back(written(sequence, k_, length, shape.qk_dim));
    v.push_back(written(sequence, v_, length, shape.v_dim));
  }

  // Writes random rows and returns what the cache made of them.
  std::vector<float> written(SequenceId sequence, StreamId stream, std::uint64_t length,
                             std::uint32_t dim) {
    constexpr float kOffsets[] = {30, 100, 300};
    std::vector<float> rows(length * shape.kv_heads * dim);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t channel = i % dim;
      const bool is_outlier = shape.has_outliers && stream == k_ && channel % 13 == 5;
      rows[i] = normal_(random_) + (is_outlier ? kOffsets[channel / 13 % 3] : 0);
    }
    EXPECT_TRUE(cache.write(sequence, stream, 0, source_of(rows)));
    EXPECT_TRUE(cache.read(sequence, stream, 0, rows));
    return rows;
  }

  [[nodiscard]] std::vector<float> rows_of(const std::vector<float>& all, std::uint32_t head,
                                           std::uint32_t dim) const {
    std::vector<float> rows;
    const std::size_t stride = std::size_t{shape.kv_heads} * dim;
    for (std::size_t i = head * std::size_t{dim}; i < all.size(); i += stride) {
      rows.insert(rows.end(), all.begin() + std::ptrdiff_t(i),
                  all.begin() + std::ptrdiff_t(i + dim));
    }
    return rows;
  }

  StreamId k_{};
  StreamId v_{};
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

class Quantised : public testing::TestWithParam<Isa> {
 protected:
  static AttentionReport check_decode(QuantisedCase& test, std::uint32_t threads) {
    const std::vector<float> q = test.random_queries(2);
    std::vector<float> out(2 * std::size_t{test.q_heads()} * test.shape.v_dim);
    const LayerView view = test.view();
    DecodeCall call;
    call.view = view.cache();
    call.num_q_heads = test.q_heads();
    call.q = q;
    call.options.arith = Arith::kF32;  // integers: coded_attention_test.cc
    call.out = out;
    RunnerState state(kernel_table(GetParam()), {.num_threads = threads});
    const auto report = decode_with(state, call);
    EXPECT_TRUE(report.has_value()) << (report.has_value() ? "" : report.error().message);
    if (!report.has_value()) return {};
    for (std::size_t s = 0; s < 2; ++s) {
      for (std::uint32_t head = 0; head < test.q_heads(); ++head) {
        const std::size_t row = s * test.q_heads() + head;
        test.expect_matches(s, s == 0 ? 0 : 202, head,
                            std::span(q).subspan(row * test.shape.qk_dim, test.shape.qk_dim),
                            std::span(out).subspan(row * test.shape.v_dim, test.shape.v_dim));
      }
    }
    return *report;
  }

  static void check_prefill(QuantisedCase& test) {
    const std::vector<std::uint64_t> q_lens = {1, 30};
    const std::vector<float> q = test.random_queries(31);
    std::vector<float> out(31 * std::size_t{test.q_heads()} * test.shape.v_dim);
    const LayerView view = test.view();
    PrefillCall call;
    call.view = view.cache();
    call.q_lens = q_lens;
    call.num_q_heads = test.q_heads();
    call.q = q;
    call.options.arith = Arith::kF32;  // integers: coded_attention_test.cc
    call.out = out;
    RunnerState state(kernel_table(GetParam()), {.num_threads = 2});
    const auto report = prefill_with(state, call);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    for (const std::uint64_t token : {0u, 1u, 2u, 17u, 30u}) {
      const std::size_t s = token == 0 ? 0 : 1;
      const std::uint64_t position = token == 0 ? 0 : 203 - 31 + token;
      for (std::uint32_t head = 0; head < test.q_heads(); ++head) {
        const std::size_t row = token * test.q_heads() + head;
        test.expect_matches(s, position, head,
                            std::span(q).subspan(row * test.shape.qk_dim, test.shape.qk_dim),
                            std::span(out).subspan(row * test.shape.v_dim, test.shape.v_dim));
      }
    }
  }
};

// Every type as K and as V, beside another each; shapes drawn from those that all types can hold.
TEST_P(Quantised, DecodeIsExactOverTheNumbersThatAreStored) {
  std::mt19937 random(3);
  const auto pick = [&](auto... choices) {
    const std::uint64_t all[] = {static_cast<std::uint64_t>(choices)...};
    return static_cast<std::uint32_t>(all[random() % std::size(all)]);
  };
  for (std::size_t i = 0; i < std::size(kTypes); ++i) {
    for (const std::size_t distance : {0u, 1u, 5u}) {
      QuantisedShape shape;
      shape.k_codec = kTypes[i];
      shape.v_codec = kTypes[(i + distance) % std::size(kTypes)];
      shape.kv_heads = pick(1, 2, 3);
      shape.group = pick(1, 2, 4, 7, 8, 12);
      shape.qk_dim = pick(32, 64, 96, 128, 192, 512);
      shape.v_dim = pick(32, 64, 96, 128, 160, 512);
      shape.layout = pick(0, 1) == 0 ? Layout::kGeneric : Layout::kHardware;
      shape.block_size = pick(1, 7, 16, 64);
      shape.has_outliers = distance == 1;
      shape.seed = static_cast<unsigned>(random());
      QuantisedCase test(shape);
      const AttentionReport report = check_decode(test, pick(1, 3));
      EXPECT_EQ(report.arith, "f32");
      EXPECT_EQ(report.isa, isa_name(GetParam()));
      check_prefill(test);
    }
  }
}

// Heads of any width where the format allows it.
TEST_P(Quantised, OddWidthsRunInFormatsWithoutWholeGroups) {
  for (const Codec codec : {Codec::kFp8E4M3, Codec::kFp8E5M2, Codec::kInt8, Codec::kInt4,
                            Codec::kFp8Scaled128, Codec::kFp8Scaled64, Codec::kFp8Scaled32}) {
    for (const std::uint32_t dim : {1u, 5u, 37u, 80u, 131u}) {
      QuantisedShape shape;
      shape.k_codec = codec;
      shape.v_codec = codec;
      shape.qk_dim = dim;
      shape.v_dim = dim == 37 ? 40 : dim;
      QuantisedCase test(shape);
      check_decode(test, 1);
      check_prefill(test);
    }
  }
}

TEST_P(Quantised, TheReportSaysWhatWasFilled) {
  QuantisedShape shape;
  QuantisedCase both(shape);
  EXPECT_EQ(check_decode(both, 1).kernel, "dense_tiles_fill_kv");
  shape.k_codec = Codec::kF16;
  QuantisedCase values(shape);
  EXPECT_EQ(check_decode(values, 1).kernel, "dense_tiles_fill_v");
  shape.k_codec = Codec::kInt8;
  shape.v_codec = Codec::kBF16;
  QuantisedCase keys(shape);
  const AttentionReport report = check_decode(keys, 1);
  EXPECT_EQ(report.kernel, "dense_tiles_fill_k");
  // 204 rows x 2 heads x (64 int8 and a scale of 4 bytes, 64 bf16).
  EXPECT_EQ(report.bytes_read, 204u * 2 * (68 + 128));
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Quantised,
                         testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

}  // namespace
}  // namespace kvarto::test
