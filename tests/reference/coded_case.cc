#include "reference/coded_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/read_plan.h"
#include "base/code_format.h"
#include "kernels/reference.h"
#include "reference/tolerance.h"

namespace kvarto::test {
namespace {

SliceShape shape_of(const CodedShape& shape, bool is_key) {
  Stream stream;
  stream.fields = {{.name = is_key ? "k" : "v",
                    .heads = shape.kv_heads,
                    .width = is_key ? shape.qk_dim : shape.v_dim,
                    .role = is_key ? CodecRole::kKey : CodecRole::kValue,
                    .codec = is_key ? shape.k : shape.v}};
  return slice_shape(stream, is_key, shape.layout, shape.rows_per_block);
}

std::uint64_t slice_bytes(const CodedShape& shape, bool is_key) {
  const CodecBytes head =
      codec_bytes(is_key ? shape.k : shape.v, is_key ? shape.qk_dim : shape.v_dim);
  return head.total() * shape.kv_heads * shape.rows_per_block;
}

}  // namespace

CodedCase::CodedCase(const CodedShape& wanted, const KernelTable& kernels)
    : shape(wanted),
      kernels_(&kernels),
      k_shape_(shape_of(wanted, true)),
      v_shape_(shape_of(wanted, false)),
      k_bytes_(slice_bytes(wanted, true)),
      v_bytes_(slice_bytes(wanted, false)) {
  std::uint64_t num_blocks = 0;
  for (const std::uint64_t length : shape.lengths)
    num_blocks += ceil_div(length, shape.rows_per_block);
  storage_.assign(num_blocks * (k_bytes_ + v_bytes_), std::byte{0xff});
  std::vector<std::uint32_t> ids(num_blocks);
  std::iota(ids.begin(), ids.end(), 0u);
  std::mt19937_64 random(shape.seed);
  std::shuffle(ids.begin(), ids.end(), random);
  auto id = ids.begin();
  for (const std::uint64_t length : shape.lengths) {
    const auto blocks = static_cast<std::ptrdiff_t>(ceil_div(length, shape.rows_per_block));
    auto& table = tables_.emplace_back(id, id + blocks);
    id += blocks;
    const std::uint64_t shared =
        std::min<std::uint64_t>(std::min(tables_[0].size(), table.size()), shape.shared_blocks);
    std::copy_n(tables_[0].begin(), shared, table.begin());
  }
  for (std::size_t s = 0; s < tables_.size(); ++s) {
    sequences_.push_back({.block_table = tables_[s], .num_tokens = shape.lengths[s]});
  }
  std::normal_distribution<float> normal;
  constexpr float kOffsets[] = {30, 100, 300};
  std::vector<float> keys(std::size_t{shape.kv_heads} * shape.qk_dim);
  std::vector<float> values(std::size_t{shape.kv_heads} * shape.v_dim);
  for (std::size_t s = 0; s < tables_.size(); ++s) {
    for (std::uint64_t row = 0; row < shape.lengths[s]; ++row) {
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const std::size_t channel = i % shape.qk_dim;
        const bool is_outlier = shape.has_outliers && channel % 13 == 5;
        keys[i] = normal(random) + (is_outlier ? kOffsets[channel / 13 % 3] : 0);
      }
      for (float& x : values) x = normal(random);
      write(s, row, true, keys);
      write(s, row, false, values);
    }
  }
  for (std::size_t s = 0; s < tables_.size(); ++s) {
    for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
      keys_.push_back(read(true, s, head));
      values_.push_back(read(false, s, head));
    }
  }
}

std::span<const float> CodedCase::rows(bool is_key, std::size_t s, std::uint32_t head) const {
  return (is_key ? keys_ : values_)[s * shape.kv_heads + head];
}

std::byte* CodedCase::slice_of(bool is_key, std::size_t s, std::uint64_t row) {
  const std::uint64_t block = tables_[s][row / shape.rows_per_block];
  return storage_.data() + block * (k_bytes_ + v_bytes_) + (is_key ? 0 : k_bytes_);
}

void CodedCase::write(std::size_t s, std::uint64_t row, bool is_key,
                      std::span<const float> values) {
  const SourceRows source{std::as_bytes(values).data(), Codec::kF32};
  write_rows(is_key ? k_shape_ : v_shape_, slice_of(is_key, s, row),
             {row % shape.rows_per_block, 1}, source, *kernels_);
}

void CodedCase::poison(std::size_t s, std::uint64_t row) {
  for (const bool is_key : {true, false}) {
    const std::vector<float> nans(
        std::size_t{shape.kv_heads} * (is_key ? shape.qk_dim : shape.v_dim), NAN);
    write(s, row, is_key, nans);
  }
}

CacheView CodedCase::view() const {
  const auto stream_view = [&](const SliceShape& slice, std::uint64_t offset) {
    const FieldShape& field = slice.fields[0];
    return StreamView{.base = storage_.data() + offset,
                      .block_stride_bytes = k_bytes_ + v_bytes_,
                      .layout = field.layout,
                      .codec = field.codec,
                      .heads = field.heads,
                      .width = field.width,
                      .squares = {}};
  };
  return {.k = stream_view(k_shape_, 0),
          .v = stream_view(v_shape_, k_bytes_),
          .rows_per_block = shape.rows_per_block,
          .sequences = sequences_};
}

std::vector<float> CodedCase::read(bool is_key, std::size_t s, std::uint32_t head) {
  const std::uint32_t dim = is_key ? shape.qk_dim : shape.v_dim;
  std::vector<float> all(std::size_t{shape.kv_heads} * dim);
  std::vector<float> found;
  for (std::uint64_t row = 0; row < shape.lengths[s]; ++row) {
    const std::byte* slice = slice_of(is_key, s, row);
    read_rows(is_key ? k_shape_ : v_shape_, {slice, {row % shape.rows_per_block, 1}}, all.data(),
              *kernels_);
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(head) * dim;
    found.insert(found.end(), from, from + dim);
  }
  return found;
}

std::vector<float> CodedCase::queries(std::uint64_t num, std::uint64_t seed) const {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> q(num * shape.q_heads * shape.qk_dim);
  for (float& x : q) x = normal(random) * (shape.has_outliers ? 4.0f : 1.0f);
  return q;
}

namespace {

struct LargestRow {
  double dot = 0;        // sum of |scale q_d k_d|
  double magnitude = 0;  // sum of |k_d|
};

LargestRow largest_row(const ReferenceCall& call) {
  LargestRow largest;
  for (std::uint64_t row = call.first_row; row < call.end_row; ++row) {
    LargestRow sum;
    for (std::uint64_t d = 0; d < call.qk_dim; ++d) {
      const double k = std::fabs(double{call.k[row * call.qk_dim + d]});
      sum.dot += std::fabs(call.scale * double{call.q[d]}) * k;
      sum.magnitude += k;
    }
    largest.dot = std::max(largest.dot, sum.dot);
    largest.magnitude = std::max(largest.magnitude, sum.magnitude);
  }
  return largest;
}

double largest_of(std::span<const float> values) {
  double largest = 0;
  for (const float x : values) largest = std::max(largest, std::fabs(double{x}));
  return largest;
}

// What integer arithmetic adds: see Arith::kInt8.
struct IntegerError {
  double score = 0;
  double output = 0;  // as a factor of the largest |v|
};

IntegerError integer_error(const CodedCase& test, const ReferenceCall& call,
                           const AttentionReport& report) {
  IntegerError error;
  if (report.arith != "int8") return error;
  const double query_max = report.query_bits == 16 ? 32639 : 127;
  constexpr double kWeightMax = 32639;
  const auto is_integer = [&](Codec codec, std::uint32_t width) {
    return code_format(codec, width).has_value();
  };
  if (is_integer(test.shape.k, test.shape.qk_dim)) {
    error.score =
        std::fabs(call.scale) * largest_of(call.q) * largest_row(call).magnitude / (2 * query_max);
  }
  if (is_integer(test.shape.v, test.shape.v_dim)) error.output = 32 / kWeightMax;
  return error;
}

ReferenceCall reference_call(const CodedCase& test, const CodedResult& result,
                             const AttentionOptions& options) {
  ReferenceCall call;
  call.q = result.q;
  call.qk_dim = test.shape.qk_dim;
  call.v_dim = test.shape.v_dim;
  if (test.shape.lengths[result.sequence] != 0) {
    const RowRange rows = visible_rows(result.position, options);
    call.first_row = rows.first;
    call.end_row = rows.end;
    call.query_position = result.position;
  }
  call.scale = options.scale.has_value() ? double{*options.scale}
                                         : 1 / std::sqrt(static_cast<double>(call.qk_dim));
  call.soft_cap = double{options.soft_cap};
  if (!options.alibi_slopes.empty()) call.slope = double{options.alibi_slopes[result.q_head]};
  if (!options.sink_logits.empty()) call.sink = double{options.sink_logits[result.q_head]};
  return call;
}

}  // namespace

void expect_within_bound(const CodedCase& test, const CodedResult& result,
                         const AttentionOptions& options, const AttentionReport& report,
                         CodedDeviation& deviation) {
  const std::uint32_t head = result.q_head / (test.shape.q_heads / test.shape.kv_heads);
  const std::span<const float> keys = test.rows(true, result.sequence, head);
  const std::span<const float> values = test.rows(false, result.sequence, head);
  ReferenceCall call = reference_call(test, result, options);
  call.k = keys;
  call.v = values;
  const ReferenceResult exact = reference_attention(call);

  ErrorTerms terms{call.qk_dim, call.end_row - call.first_row, largest_row(call).dot, call.soft_cap,
                   std::fabs(call.slope) * static_cast<double>(call.query_position)};
  const IntegerError integer = integer_error(test, call, report);
  const double growth = std::exp(2 * integer.score);  // of a weight
  const auto visible =
      values.subspan(call.first_row * call.v_dim, (call.end_row - call.first_row) * call.v_dim);
  // The weight error of both roundings together, once above and once below the fraction.
  const double factor = growth * (1 + output_tolerance(terms) / 2) - 1;
  const double bound = largest_of(visible) * (2 * factor + integer.output);
  for (std::uint32_t d = 0; d < test.shape.v_dim; ++d) {
    const double error = std::fabs(double{result.out[d]} - exact.out[d]);
    ASSERT_LE(error, bound) << "sequence " << result.sequence << " head " << result.q_head
                            << " position " << result.position << " element " << d << ": found "
                            << result.out[d] << ", expected " << exact.out[d];
    deviation.difference = std::max(deviation.difference, error);
    deviation.reference = std::max(deviation.reference, std::fabs(exact.out[d]));
  }
  if (std::isinf(exact.lse)) {
    EXPECT_EQ(double{result.lse}, exact.lse);
  } else {
    EXPECT_NEAR(double{result.lse}, exact.lse, lse_tolerance(terms, exact.lse) + integer.score);
  }
}

}  // namespace kvarto::test
