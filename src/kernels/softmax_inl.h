// Scores to probabilities under a running maximum, and the joining of partial results.

#pragma once

namespace kvarto::KVARTO_ISA {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();
// The maximum moves only when a score exceeds it by more than 2^4: probabilities then stay below
// 16, far from overflow, and the accumulators are seldom rescaled.
inline constexpr float kLazyLimit = 4.0f;

// Near 0 the series, whose next term is 5e-8 of the result; beyond, 1 - 2 / (e^2x + 1), relative
// error 1e-6 there. A soft-cap multiplies what is left of small arguments by a large number.
KVARTO_INLINE Vec tanh(Vec x) {
  constexpr float kSeriesEnd = 0.3f;
  const Vec bounded = min(max(x, set1(-20.0f)), set1(20.0f));
  const Vec e = exp2(mul(bounded, set1(2.88539008f)));  // 2 / ln 2
  const Vec far = sub(set1(1.0f), div(set1(2.0f), add(e, set1(1.0f))));
  const Vec square = mul(x, x);
  Vec series = set1(62.0f / 2835.0f);
  series = fma(series, square, set1(-17.0f / 315.0f));
  series = fma(series, square, set1(2.0f / 15.0f));
  series = fma(series, square, set1(-1.0f / 3.0f));
  series = fma(mul(series, square), x, x);
  return select_lanes(x, -kSeriesEnd, kSeriesEnd, series, far);
}

// Soft-cap, ALiBi and masks, in place, for the vectors [begin, end) of one query's scores.
KVARTO_INLINE void shape_scores(const SoftmaxArgs& args, std::uint32_t query, float* scores,
                                std::uint32_t begin, std::uint32_t end) {
  const float first =
      static_cast<float>(args.query_first == nullptr ? args.first_row : args.query_first[query]);
  const float last =
      static_cast<float>(args.query_end == nullptr ? args.end_row : args.query_end[query]);
  const Vec lane = lane_numbers();
  for (std::uint32_t row = begin; row < end; row += kLanes) {
    Vec x = load(scores + row);
    const Vec number = add(lane, set1(static_cast<float>(row)));
    if (args.soft_cap > 0) {
      x = mul(set1(args.soft_cap), tanh(div(x, set1(args.soft_cap))));
    }
    if (args.slopes != nullptr) {
      x = fma(set1(args.slopes[query]), add(number, set1(args.distances[query])), x);
    }
    store(scores + row, select_lanes(number, first, last, x, set1(kMinusInfinity)));
  }
}

inline void softmax(const SoftmaxArgs& args) {
  const std::uint32_t begin = args.first_row / kLanes * kLanes;
  const std::uint32_t end = (args.end_row + kLanes - 1) / kLanes * kLanes;
  const bool is_plain = args.first_row == begin && args.end_row == end && args.soft_cap <= 0 &&
                        args.slopes == nullptr && args.query_end == nullptr;
  for (std::uint32_t query = 0; query < args.num_queries; ++query) {
    float* scores = args.scores + std::size_t{query} * kChunkRows;
    if (!is_plain) shape_scores(args, query, scores, begin, end);
    Vec largest = load(scores + begin);
    for (std::uint32_t row = begin + kLanes; row < end; row += kLanes) {
      largest = max(largest, load(scores + row));
    }
    float maximum = args.maximum[query];
    float correction = 1.0f;
    if (__builtin_expect(is_any_greater(largest, set1(maximum + kLazyLimit)), 0)) {
      const float moved = reduce_max(largest);
      correction = first_lane(exp2(set1(maximum - moved)));
      args.maximum[query] = maximum = moved;
    }
    args.correction[query] = correction;
    // With nothing visible so far every score is -infinity, and so must stay every difference.
    const Vec m = set1(maximum == kMinusInfinity ? 0.0f : maximum);
    Vec total = zero();
    for (std::uint32_t row = begin; row < end; row += kLanes) {
      const Vec p = exp2(sub(load(scores + row), m));
      total = add(total, p);
      store(scores + row, p);
    }
    float* sum = args.sum + std::size_t{query} * kPadFloats;
    store(sum, fma(load(sum), set1(correction), total));
    // The other lanes of the padded sum scale along with the maximum.
    for (std::uint32_t lane = kLanes; lane < kPadFloats; ++lane) sum[lane] *= correction;
  }
}

inline void combine(const CombineArgs& args) {
  std::uint32_t d = 0;
  for (; d + kLanes <= args.dim; d += kLanes) {
    Vec x = zero();
    for (std::uint32_t i = 0; i < args.num_parts; ++i) {
      x = fma(load(args.parts[i] + d), set1(args.weights[i]), x);
    }
    store(args.out + d, x);
  }
  for (; d < args.dim; ++d) {
    float x = 0;
    for (std::uint32_t i = 0; i < args.num_parts; ++i) x += args.parts[i][d] * args.weights[i];
    args.out[d] = x;
  }
}

}  // namespace kvarto::KVARTO_ISA
