#include "attention/half_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/half_kernels.h"
#include "kernels/wide_kernels.h"

namespace kvarto {
namespace {

constexpr double kHalfUnit = 0x1p-11;  // largest relative rounding error
constexpr float kHalfLargest = 65504;  // largest finite number
constexpr double kHalfSmallest = 0x1p-24;
// A chunk adds at most so many values, each times a probability of at most 2^-kHalfHeadroom.
constexpr float kMaxValue = kHalfLargest / (kChunkRows >> kHalfHeadroom);

constexpr float kLeastSquare = 1e-6f;

// Rows may be written to other sequences meanwhile, which only raises a peak.
float load(const float* peak) {
  return std::atomic_ref<float>(const_cast<float&>(*peak)).load(std::memory_order_relaxed);
}

// Mean squares of one head; more than any data for a stream that has rows of which none is known.
std::vector<float> mean_squares(const StreamView& stream, std::uint32_t head) {
  std::vector<float> squares(stream.width);
  const float weight = stream.squares.weight;
  for (std::uint32_t d = 0; d < stream.width; ++d) {
    const float peak = load(stream.squares.peaks + std::size_t{head} * stream.width + d);
    squares[d] = weight > 0 ? peak / weight : peak == 0 ? 0 : INFINITY;
  }
  return squares;
}

// The largest element of a head that its squares allow, or infinity.
float largest_element(const StreamView& stream, std::span<const float> squares) {
  float largest = 0;
  for (const float square : squares) largest = square <= largest ? largest : square;
  const float element = std::sqrt(largest * static_cast<float>(stream.squares.max_rows));
  return element <= kHalfLargest ? element : INFINITY;
}

// What decides about the queries of one KV head.
struct HeadBound {
  std::vector<float> weights;  // roundings x mean square, by element
  double floor = 0;            // variance from queries below the range of f16
};

Result<HeadBound> bound_of(const CacheView& view, std::uint32_t head,
                           std::span<const float> roundings) {
  const std::vector<float> values = mean_squares(view.v, head);
  if (const float largest = largest_element(view.v, values); !(largest <= kMaxValue)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("arith: f16: values of KV head {} may be as large as {:.3g}, limit "
                            "{:.3g}, beyond which sums leave the range of f16; f32 has no such "
                            "limit",
                            head, largest, kMaxValue));
  }
  HeadBound bound;
  bound.weights = mean_squares(view.k, head);
  if (const float largest = largest_element(view.k, bound.weights); !(largest <= kHalfLargest)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("arith: f16: keys of KV head {} are unknown or not finite, expected "
                            "finite rows written through KvCache::write; f32 needs no such thing",
                            head));
  }
  for (std::uint32_t d = 0; d < view.k.width; ++d) {
    // A query that leaves the range of f16 is refused even where its keys are 0.
    bound.weights[d] = std::max(bound.weights[d], kLeastSquare);
    bound.floor += double{bound.weights[d]} * (kHalfSmallest * kHalfSmallest / 12);
    bound.weights[d] *= roundings[d];
  }
  return bound;
}

Status refuse(std::uint64_t q_head, const HeadBound& bound, const float* q, double error) {
  std::size_t worst = 0;
  float share = 0;
  float total = 0;
  for (std::size_t d = 0; d < bound.weights.size(); ++d) {
    const float part = bound.weights[d] * (q[d] * q[d]);
    total += part;
    if (part > share) worst = d;
    share = std::max(share, part);
  }
  const float fraction = total > 0 ? share / total : 0;
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("arith: f16: the scores of query head {} may be off by {:.1e}, limit {:.1e}: its "
                  "queries and keys are too large for sums in 16 bits (element {} makes {:.0f} %); "
                  "f32 has no such limit",
                  q_head, error, kMaxHalfScoreError, worst, 100 * fraction));
}

}  // namespace

// Totals of the kernels for many queries, which are the longest.
std::vector<float> half_roundings(std::uint32_t dim) {
  std::vector<float> roundings(dim);
  for (std::uint32_t d = 0; d < dim; ++d) {
    const std::uint32_t chain = d / kHalfChainTerms;
    const std::uint32_t chain_end = std::min(dim, (chain + 1) * kHalfChainTerms);
    const std::uint32_t num_chains = (dim + kHalfChainTerms - 1) / kHalfChainTerms;
    const std::uint32_t in_total = chain % kWideHalfTotalChains;
    const std::uint32_t total_end = std::min(num_chains, chain - in_total + kWideHalfTotalChains);
    // The first chain begins a total and is not added to one.
    const std::uint32_t additions = total_end - chain - (in_total == 0 ? 1 : 0);
    roundings[d] = static_cast<float>(1 + (chain_end - d) + additions);
  }
  return roundings;
}

std::vector<float> half_row_roundings(std::uint32_t dim) {
  std::vector<float> roundings(dim);
  const std::uint32_t steps = (dim + kHalfRowLanes - 1) / kHalfRowLanes;
  for (std::uint32_t d = 0; d < dim; ++d) {
    roundings[d] = static_cast<float>(1 + (steps - d / kHalfRowLanes) + kHalfRowSums);
  }
  return roundings;
}

Status check_half_bound(const CallShape& call, const PassShape& shape) {
  const CacheView& view = *call.view;
  const std::uint32_t group_size = call.num_q_heads / view.k.heads;
  const std::vector<float> roundings =
      shape.slab.is_used ? half_row_roundings(view.k.width) : half_roundings(view.k.width);
  std::vector<HeadBound> bounds;
  for (std::uint32_t head = 0; head < view.k.heads; ++head) {
    KVARTO_TRY(HeadBound bound, bound_of(view, head, roundings));
    bounds.push_back(std::move(bound));
  }
  const double scale = std::fabs(double{shape.query_scale}) / double{kLog2E};
  const double variance = scale * scale * (kHalfUnit * kHalfUnit / 3);
  const WeightedSquareFunction weighted_square = shape.kernels->wide->weighted_square;
  const float* q = call.q;
  for (std::uint64_t token = 0; token < call.num_queries; ++token) {
    for (std::uint32_t q_head = 0; q_head < call.num_q_heads; ++q_head, q += view.k.width) {
      const HeadBound& bound = bounds[q_head / group_size];
      const float square = weighted_square(bound.weights.data(), q, view.k.width);
      const double sum = double{square} * variance + bound.floor;
      if (!(sum <= kMaxHalfScoreError * kMaxHalfScoreError)) {
        return refuse(q_head, bound, q, std::sqrt(sum));
      }
    }
  }
  return {};
}

}  // namespace kvarto
