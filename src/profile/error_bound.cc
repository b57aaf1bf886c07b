#include "profile/error_bound.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/code_format.h"
#include "kernels/kernels.h"

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

namespace {

// Sums over the rows for one element of the output.
struct ElementSums {
  double mean = 0;
  double spread = 0;
  double spread_square = 0;
  double chunk = 0;  // of the chunk that is being summed
  double chunk_square = 0;
};

// The part of the magnitudes that scores have; returns the exact weights of the rows.
std::vector<double> add_scores(const ReferenceCall& call, double lse, HeadMagnitudes& head) {
  std::vector<double> weights;
  for (std::uint64_t row = call.first_row; row < call.end_row; ++row) {
    const std::span<const float> key = call.k.subspan(row * call.qk_dim, call.qk_dim);
    double score = 0;
    double dot = 0;
    double square = 0;
    double key_sum = 0;
    for (std::size_t d = 0; d < key.size(); ++d) {
      const double product = call.scale * double{call.q[d]} * double{key[d]};
      score += product;
      dot += std::fabs(product);
      square += product * product;
      key_sum += std::fabs(double{key[d]});
    }
    head.dot = std::max(head.dot, dot);
    head.square = std::max(head.square, square);
    head.key_sum = std::max(head.key_sum, key_sum);
    weights.push_back(std::exp(score - lse));
  }
  return weights;
}

void add_values(const ReferenceCall& call, const ReferenceResult& exact,
                std::span<const double> weights, HeadMagnitudes& head) {
  std::vector<ElementSums> sums(call.v_dim);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool is_chunk_end = (i + 1) % kChunkRows == 0 || i + 1 == weights.size();
    const std::span<const float> value =
        call.v.subspan((call.first_row + i) * call.v_dim, call.v_dim);
    for (std::size_t d = 0; d < value.size(); ++d) {
      const double part = weights[i] * std::fabs(double{value[d]});
      const double moved = weights[i] * std::fabs(double{value[d]} - exact.out[d]);
      ElementSums& sum = sums[d];
      sum.mean += part;
      sum.spread += moved;
      sum.spread_square += moved * moved;
      sum.chunk += part;
      if (!is_chunk_end) continue;
      sum.chunk_square += sum.chunk * sum.chunk;
      sum.chunk = 0;
    }
  }
  for (const ElementSums& sum : sums) {
    head.mean = std::max(head.mean, sum.mean);
    head.spread = std::max(head.spread, sum.spread);
    head.independent_spread = std::max(head.independent_spread, std::sqrt(sum.spread_square));
    head.chunk_mean = std::max(head.chunk_mean, std::sqrt(sum.chunk_square));
  }
}

}  // namespace

HeadMagnitudes magnitudes_of(const ReferenceCall& call, const ReferenceResult& exact) {
  HeadMagnitudes head;
  head.dim = call.qk_dim;
  head.rows = call.end_row - call.first_row;
  head.scale = std::fabs(call.scale);
  head.query = largest_of(call.q);
  add_values(call, exact, add_scores(call, exact.lse, head), head);
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
  constexpr double kAnything = 1e9;
  double growth = weight < 1 ? (1 + weight) / (1 - weight) : kAnything;
  if (ran.has_integer_keys) {
    const double query_max = ran.query_bits == 8 ? kQueryMax8 : kQueryMax16;
    growth *= std::exp(head.scale * head.query * head.key_sum / query_max);
  }
  // Whatever the weights, both are means of the values.
  double bound = std::min((growth - 1) * head.spread, 2 * head.value) +
                 2 * gamma(static_cast<double>(head.rows) + 8) * head.mean;
  if (ran.has_integer_values) bound += 32 / kWeightMax * head.value;
  if (ran.is_half) {
    const double error = kHalfSigmas * kHalfSigma;
    bound += error * std::sqrt(20 * head.square) * head.independent_spread;
    bound += error * std::sqrt(68.0) * head.chunk_mean + 0x1p-15 * head.value;
  }
  return bound;
}

}  // namespace kvarto
