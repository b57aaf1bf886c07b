#include "runtime/rope.h"

#include <algorithm>
#include <cmath>

namespace kvarto {
namespace {

constexpr double kTurn = 6.283185307179586;  // radians

// Long waves are stretched by `factor`, short ones are kept, those between are mixed.
double llama3_frequency(const RopeParameters& p, double frequency) {
  const double wavelength = kTurn / frequency;  // tokens
  if (wavelength < p.original_context / p.high_freq_factor) return frequency;
  if (wavelength > p.original_context / p.low_freq_factor) return frequency / p.factor;
  const double kept = (p.original_context / wavelength - p.low_freq_factor) /
                      (p.high_freq_factor - p.low_freq_factor);
  return (1 - kept) * frequency / p.factor + kept * frequency;
}

// The pair, as a real number, that turns `turns` times within the original context.
double yarn_pair(const RopeParameters& p, double turns) {
  return p.dims * std::log(p.original_context / (turns * kTurn)) / (2 * std::log(p.base));
}

// 0 where a pair's frequency is kept, 1 where it is divided by the factor.
double yarn_share(const RopeParameters& p, double pair) {
  double low = yarn_pair(p, p.beta_fast);
  double high = yarn_pair(p, p.beta_slow);
  if (p.is_truncated) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, p.dims - 1.0);
  if (low == high) high += 0.001;  // as the reference code does: a step
  return std::clamp((pair - low) / (high - low), 0.0, 1.0);
}

double scaled_frequency(const RopeParameters& p, double frequency, double pair) {
  switch (p.scaling) {
    case RopeParameters::Scaling::kNone:
      return frequency;
    case RopeParameters::Scaling::kLinear:
      return frequency / p.factor;
    case RopeParameters::Scaling::kLlama3:
      return llama3_frequency(p, frequency);
    case RopeParameters::Scaling::kYarn: {
      const double share = yarn_share(p, pair);
      return frequency / p.factor * share + frequency * (1 - share);
    }
  }
  return frequency;
}

}  // namespace

double yarn_attention_factor(double factor) {
  return factor <= 1 ? 1.0 : 0.1 * std::log(factor) + 1.0;
}

Rope make_rope(const RopeParameters& parameters, RopeOrder order) {
  Rope rope{.order = order,
            .dims = parameters.dims,
            .frequencies = {},
            .attention_factor = parameters.attention_factor};
  for (std::uint32_t pair = 0; pair < parameters.dims / 2; ++pair) {
    double frequency = std::pow(parameters.base, -2.0 * pair / parameters.dims);
    if (!parameters.divisors.empty()) frequency /= static_cast<double>(parameters.divisors[pair]);
    rope.frequencies.push_back(scaled_frequency(parameters, frequency, pair));
  }
  return rope;
}

void fill_rotations(const Rope& rope, std::uint64_t first, std::uint64_t num_tokens,
                    std::span<float> cosines, std::span<float> sines) {
  std::size_t i = 0;
  for (std::uint64_t t = 0; t < num_tokens; ++t) {
    const auto position = static_cast<double>(first + t);
    for (const double frequency : rope.frequencies) {
      const double angle = position * frequency;
      cosines[i] = static_cast<float>(std::cos(angle) * rope.attention_factor);
      sines[i] = static_cast<float>(std::sin(angle) * rope.attention_factor);
      ++i;
    }
  }
}

}  // namespace kvarto
