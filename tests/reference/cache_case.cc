#include "reference/cache_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "attention/read_plan.h"
#include "kernels/dispatch.h"
#include "kernels/reference.h"
#include "reference/number_format.h"
#include "reference/tolerance.h"

namespace kvarto::test {

CacheCase::CacheCase(const CaseShape& wanted) : shape(wanted) {
  for (const std::uint64_t length : shape.lengths) {
    num_blocks_ += (length + shape.rows_per_block - 1) / shape.rows_per_block;
  }
  const std::uint64_t k_bytes =
      std::uint64_t{shape.rows_per_block} * shape.kv_heads * shape.qk_dim * element_bytes();
  const std::uint64_t v_bytes =
      std::uint64_t{shape.rows_per_block} * shape.kv_heads * shape.v_dim * element_bytes();
  block_bytes_ = k_bytes + v_bytes;
  // All bits set is NaN in every format here.
  storage_.assign(num_blocks_ * block_bytes_, std::byte{0xff});
  std::vector<std::uint32_t> ids(num_blocks_);
  std::iota(ids.begin(), ids.end(), 0u);
  std::mt19937_64 random(shape.seed);
  if (shape.is_shuffled) std::shuffle(ids.begin(), ids.end(), random);
  auto id = ids.begin();
  for (const std::uint64_t length : shape.lengths) {
    const std::uint64_t blocks = (length + shape.rows_per_block - 1) / shape.rows_per_block;
    tables.emplace_back(id, id + static_cast<std::ptrdiff_t>(blocks));
    id += static_cast<std::ptrdiff_t>(blocks);
    sequences.push_back({.num_tokens = length});
  }
  for (std::size_t s = 0; s < sequences.size(); ++s) sequences[s].block_table = tables[s];
  fill(random);
}

void CacheCase::fill(std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  constexpr float kOffsets[] = {30, 100, 300};
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    auto& keys = k.emplace_back(shape.lengths[s] * shape.kv_heads * shape.qk_dim);
    auto& values = v.emplace_back(shape.lengths[s] * shape.kv_heads * shape.v_dim);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::size_t channel = i % shape.qk_dim;
      const bool is_outlier = shape.has_outliers && channel % 13 == 5;
      keys[i] = stored_value(shape.key_scale * normal(random) +
                             (is_outlier ? kOffsets[channel / 13 % 3] : 0));
    }
    for (float& x : values) x = stored_value(shape.value_scale * normal(random));
    for (std::uint64_t row = 0; row < shape.lengths[s]; ++row) write_row(s, row);
  }
  k_squares_ = ElementSquares(shape.kv_heads, shape.qk_dim);
  v_squares_ = ElementSquares(shape.kv_heads, shape.v_dim);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const KernelTable& kernels = kernel_table(Isa::kScalar);
    k_squares_.add({std::as_bytes(std::span(k[s])).data(), Element::kF32, shape.lengths[s]},
                   kernels);
    v_squares_.add({std::as_bytes(std::span(v[s])).data(), Element::kF32, shape.lengths[s]},
                   kernels);
  }
  q.resize(sequences.size() * shape.q_heads * shape.qk_dim);
  for (float& x : q) x = normal(random) * (shape.has_outliers ? 4.0f : 1.0f);
  out.assign(sequences.size() * shape.q_heads * shape.v_dim, NAN);
  lse.assign(sequences.size() * shape.q_heads, NAN);
}

std::uint64_t CacheCase::element_bytes() const { return shape.codec == Codec::kF32 ? 4 : 2; }

StreamLayout CacheCase::layout_of(RowOrder order, std::uint32_t width) const {
  const std::uint64_t head = width * element_bytes();
  switch (order) {
    case RowOrder::kRowHead:
      return {order, head, head * shape.kv_heads};
    case RowOrder::kHeadRow:
      return {order, head * shape.rows_per_block, head};
    case RowOrder::kHeadTiles:
      return {order, head * shape.rows_per_block, head * 16};
    case RowOrder::kHeadValueTiles:  // of integer codes alone
      break;
  }
  return {};
}

CacheView CacheCase::view() const {
  CacheView view;
  view.rows_per_block = shape.rows_per_block;
  view.sequences = sequences;
  view.k = {storage_.data(), block_bytes_,   layout_of(shape.k_order, shape.qk_dim),
            shape.codec,     shape.kv_heads, shape.qk_dim};
  view.v = {storage_.data() + std::uint64_t{shape.rows_per_block} * shape.kv_heads * shape.qk_dim *
                                  element_bytes(),
            block_bytes_,
            layout_of(shape.v_order, shape.v_dim),
            shape.codec,
            shape.kv_heads,
            shape.v_dim};
  view.k.squares = k_squares_.view();
  view.v.squares = v_squares_.view();
  return view;
}

DecodeCall CacheCase::decode_call(const AttentionOptions& options) {
  DecodeCall call;
  call.view = view();
  call.num_q_heads = shape.q_heads;
  call.q = q;
  call.options = options;
  call.out = out;
  call.lse = lse;
  return call;
}

std::uint64_t CacheCase::element_offset(const StreamView& stream, std::uint32_t block,
                                        std::uint64_t row, std::uint32_t head,
                                        std::uint32_t element) const {
  const std::uint64_t width = stream.width;
  std::uint64_t index = 0;
  switch (stream.layout.order) {
    case RowOrder::kRowHead:
      index = (row * shape.kv_heads + head) * width + element;
      break;
    case RowOrder::kHeadRow:
      index = (std::uint64_t{head} * shape.rows_per_block + row) * width + element;
      break;
    case RowOrder::kHeadTiles:
      index = std::uint64_t{head} * shape.rows_per_block * width + row / 16 * 16 * width +
              std::uint64_t{element} * 16 + row % 16;
      break;
    case RowOrder::kHeadValueTiles:
      break;
  }
  return static_cast<std::uint64_t>(stream.base - storage_.data()) + block * block_bytes_ +
         index * element_bytes();
}

void CacheCase::write_element(const StreamView& stream, std::uint32_t block, std::uint64_t row,
                              std::uint32_t head, std::uint32_t element, float value) {
  std::byte* to = storage_.data() + element_offset(stream, block, row, head, element);
  if (shape.codec == Codec::kF32) {
    std::memcpy(to, &value, sizeof value);
  } else {
    const std::uint16_t code = encode(shape.codec == Codec::kF16 ? kFormatF16 : kFormatBF16, value);
    std::memcpy(to, &code, sizeof code);
  }
}

float CacheCase::stored_value(float value) const {
  if (shape.codec == Codec::kF32) return value;
  const NumberFormat format = shape.codec == Codec::kF16 ? kFormatF16 : kFormatBF16;
  return static_cast<float>(decode(format, encode(format, value)));
}

void CacheCase::write_row(std::size_t s, std::uint64_t row, bool is_poison) {
  const CacheView cache = view();
  const std::uint32_t block = tables[s][row / shape.rows_per_block];
  const std::uint64_t place = row % shape.rows_per_block;
  for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
    const std::size_t index = row * shape.kv_heads + head;
    for (std::uint32_t d = 0; d < shape.qk_dim; ++d) {
      write_element(cache.k, block, place, head, d,
                    is_poison ? NAN : k[s][index * shape.qk_dim + d]);
    }
    for (std::uint32_t d = 0; d < shape.v_dim; ++d) {
      write_element(cache.v, block, place, head, d,
                    is_poison ? NAN : v[s][index * shape.v_dim + d]);
    }
  }
}

void CacheCase::move_blocks(std::uint64_t seed) {
  std::vector<std::uint32_t> to(num_blocks_);
  std::iota(to.begin(), to.end(), 0u);
  std::mt19937_64 random(seed);
  std::shuffle(to.begin(), to.end(), random);
  std::vector<std::byte> moved(storage_.size());
  for (std::uint64_t block = 0; block < num_blocks_; ++block) {
    std::memcpy(&moved[to[block] * block_bytes_], &storage_[block * block_bytes_], block_bytes_);
  }
  storage_ = std::move(moved);
  for (auto& table : tables) {
    for (std::uint32_t& block : table) block = to[block];
  }
}

std::vector<float> CacheCase::k_rows(std::size_t s, std::uint32_t head) const {
  std::vector<float> rows;
  for (std::uint64_t row = 0; row < shape.lengths[s]; ++row) {
    const auto from =
        k[s].begin() + static_cast<std::ptrdiff_t>((row * shape.kv_heads + head) * shape.qk_dim);
    rows.insert(rows.end(), from, from + shape.qk_dim);
  }
  return rows;
}

std::vector<float> CacheCase::v_rows(std::size_t s, std::uint32_t head) const {
  std::vector<float> rows;
  for (std::uint64_t row = 0; row < shape.lengths[s]; ++row) {
    const auto from =
        v[s].begin() + static_cast<std::ptrdiff_t>((row * shape.kv_heads + head) * shape.v_dim);
    rows.insert(rows.end(), from, from + shape.v_dim);
  }
  return rows;
}

std::span<const float> CacheCase::query(std::size_t s, std::uint32_t q_head) const {
  return std::span(q).subspan((s * shape.q_heads + q_head) * shape.qk_dim, shape.qk_dim);
}

namespace {

double largest_dot(const ReferenceCall& call) {
  double largest = 0;
  for (std::uint64_t row = call.first_row; row < call.end_row; ++row) {
    double dot = 0;
    for (std::uint64_t d = 0; d < call.qk_dim; ++d) {
      dot += std::fabs(call.scale * double{call.q[d]} * double{call.k[row * call.qk_dim + d]});
    }
    largest = std::max(largest, dot);
  }
  return largest;
}

double largest_square(const ReferenceCall& call) {
  double largest = 0;
  for (std::uint64_t row = call.first_row; row < call.end_row; ++row) {
    double sum = 0;
    for (std::uint32_t d = 0; d < call.qk_dim; ++d) {
      const double product = call.scale * double{call.q[d]} * double{call.k[row * call.qk_dim + d]};
      sum += product * product;
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

}  // namespace

void expect_query_matches(const CacheCase& test, const QueryResult& result,
                          const AttentionOptions& options, Deviation& deviation) {
  const CaseShape& shape = test.shape;
  const std::uint32_t head = result.q_head / (shape.q_heads / shape.kv_heads);
  const std::vector<float> keys = test.k_rows(result.sequence, head);
  const std::vector<float> values = test.v_rows(result.sequence, head);
  ReferenceCall call;
  call.q = result.q;
  call.k = keys;
  call.v = values;
  call.qk_dim = shape.qk_dim;
  call.v_dim = shape.v_dim;
  if (shape.lengths[result.sequence] != 0) {
    const RowRange rows = visible_rows(result.position, options);
    call.first_row = rows.first;
    call.end_row = rows.end;
    call.query_position = result.position;
  }
  call.scale = options.scale.has_value() ? double{*options.scale}
                                         : 1 / std::sqrt(static_cast<double>(shape.qk_dim));
  call.soft_cap = double{options.soft_cap};
  if (!options.alibi_slopes.empty()) call.slope = double{options.alibi_slopes[result.q_head]};
  if (!options.sink_logits.empty()) call.sink = double{options.sink_logits[result.q_head]};
  const ReferenceResult exact = reference_attention(call);

  const ErrorTerms terms{shape.qk_dim,
                         call.end_row - call.first_row,
                         largest_dot(call),
                         call.soft_cap,
                         std::fabs(call.slope) * static_cast<double>(call.query_position),
                         options.arith == Arith::kF16,
                         largest_square(call)};
  double largest_v = 0;
  for (const float x : values) largest_v = std::max(largest_v, std::fabs(double{x}));
  const double bound = output_tolerance(terms) * largest_v;
  for (std::uint32_t d = 0; d < shape.v_dim; ++d) {
    const double error = std::fabs(double{result.out[d]} - exact.out[d]);
    if (!(error <= bound)) {
      ADD_FAILURE() << "sequence " << result.sequence << " head " << result.q_head << " position "
                    << result.position << " element " << d << ": found " << result.out[d]
                    << ", expected " << exact.out[d] << " +- " << bound;
      deviation.difference = INFINITY;
      return;
    }
    deviation.difference = std::max(deviation.difference, error);
    deviation.reference = std::max(deviation.reference, std::fabs(exact.out[d]));
  }
  const double lse = double{result.lse};
  if (std::isinf(exact.lse)) {
    EXPECT_EQ(lse, exact.lse);
  } else {
    EXPECT_NEAR(lse, exact.lse, lse_tolerance(terms, exact.lse))
        << "sequence " << result.sequence << " head " << result.q_head;
  }
}

double expect_matches_reference(const CacheCase& test, const AttentionOptions& options) {
  const CaseShape& shape = test.shape;
  Deviation deviation;
  for (std::size_t s = 0; s < test.sequences.size(); ++s) {
    for (std::uint32_t q_head = 0; q_head < shape.q_heads; ++q_head) {
      const std::size_t row = s * shape.q_heads + q_head;
      QueryResult result;
      result.sequence = s;
      result.q_head = q_head;
      result.position = shape.lengths[s] - 1;
      result.q = test.query(s, q_head);
      result.out = std::span(test.out).subspan(row * shape.v_dim, shape.v_dim);
      result.lse = test.lse[row];
      expect_query_matches(test, result, options, deviation);
    }
  }
  return deviation.relative();
}

}  // namespace kvarto::test
