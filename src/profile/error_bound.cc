#include "profile/error_bound.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/code_format.h"

namespace kvarto {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kHalfSigmas = 6;
constexpr double kHalfSigma = 0x1p-11 / 1.7320508075688772;  // 2^-11 / sqrt(3)
// Largest integers of integer arithmetic (enum Arith): queries of 16 and 8 bits, weights.
constexpr double kQueryMax16 = 32639;
constexpr double kQueryMax8 = 127;
constexpr double kWeightMax = 32639;

double gamma(double n) { return n * kUnit / (1 - n * kUnit); }

double largest_of(std::span<const float> values) {
  double largest = 0;
  for (const float x : values) largest = std::max(largest, std::fabs(double{x}));
  return largest;
}

bool is_in_code_tiles(const StreamView& stream) {
  return (stream.layout.order == RowOrder::kHeadTiles ||
          stream.layout.order == RowOrder::kHeadValueTiles) &&
         code_format(stream.codec, stream.width).has_value();
}

}  // namespace

HeadMagnitudes magnitudes_of(const ReferenceCall& call) {
  HeadMagnitudes head;
  head.dim = call.qk_dim;
  head.rows = call.end_row - call.first_row;
  head.scale = std::fabs(call.scale);
  head.query = largest_of(call.q);
  for (std::uint64_t row = call.first_row; row < call.end_row; ++row) {
    const std::span<const float> key = call.k.subspan(row * call.qk_dim, call.qk_dim);
    double dot = 0;
    double square = 0;
    double key_sum = 0;
    for (std::size_t d = 0; d < key.size(); ++d) {
      const double k = std::fabs(double{key[d]});
      const double product = head.scale * std::fabs(double{call.q[d]}) * k;
      dot += product;
      square += product * product;
      key_sum += k;
    }
    head.dot = std::max(head.dot, dot);
    head.square = std::max(head.square, square);
    head.key_sum = std::max(head.key_sum, key_sum);
  }
  head.value = largest_of(call.v.subspan(call.first_row * call.v_dim, head.rows * call.v_dim));
  return head;
}

RanArithmetic ran_arithmetic(const CacheView& view, const AttentionReport& ran) {
  const bool is_integer = ran.arith == arith_name(Arith::kInt8);
  return {.is_half = ran.arith == arith_name(Arith::kF16),
          .has_integer_keys = is_integer && is_in_code_tiles(view.k),
          .has_integer_values = is_integer && is_in_code_tiles(view.v),
          .query_bits = ran.query_bits};
}

double output_error_bound(const HeadMagnitudes& head, const RanArithmetic& ran) {
  const double score = gamma(static_cast<double>(head.dim) + 4) * head.dot;
  const double weight = std::expm1(2 * score + 30 * kUnit * std::log(2.0)) + 0x1p-21;
  double factor = weight + gamma(static_cast<double>(head.rows) + 8);
  if (ran.has_integer_keys) {
    const double query_max = ran.query_bits == 8 ? kQueryMax8 : kQueryMax16;
    const double moved = head.scale * head.query * head.key_sum / (2 * query_max);
    factor = std::exp(2 * moved) * (1 + factor) - 1;
  }
  double bound = 2 * factor;
  if (ran.has_integer_values) bound += 32 / kWeightMax;
  if (ran.is_half) {
    bound += 2 * kHalfSigmas * kHalfSigma * std::sqrt(20 * head.square);
    bound += kHalfSigmas * kHalfSigma * std::sqrt(68.0) + 0x1p-15;
  }
  return bound * head.value;
}

}  // namespace kvarto
