#include "kvarto/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvarto {
namespace {

Status check_range(double value, double max, const char* name) {
  if (value >= 0.0 && value <= max) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: found {}, expected a number from 0 to {}", name, value, max));
}

// Beyond it every token is as likely as any other.
constexpr double kMaxTemperature = 1e6;

// NaN is never the greatest.
TokenId greatest(std::span<const float> logits) {
  TokenId best = 0;
  bool has_best = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || (has_best && logits[i] <= logits[best])) continue;
    best = static_cast<TokenId>(i);
    has_best = true;
  }
  return best;
}

}  // namespace

Result<Sampler> Sampler::create(const SamplerOptions& options) {
  KVARTO_CHECK_OK(check_range(options.temperature, kMaxTemperature, "temperature"));
  KVARTO_CHECK_OK(check_range(options.top_p, 1.0, "top-p"));
  KVARTO_CHECK_OK(check_range(options.min_p, 1.0, "min-p"));
  return Sampler(options);
}

double Sampler::uniform() {
  state_ += 0x9E37'79B9'7F4A'7C15;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58'476D'1CE4'E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D0'49BB'1331'11EB;
  mixed ^= mixed >> 31;
  return static_cast<double>(mixed >> 11) * 0x1p-53;  // [0, 1)
}

// The candidates that top-k leaves, the most likely first, of equal ones the first token first.
void Sampler::fill(std::span<const float> logits) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == -INFINITY) continue;
    candidates_.push_back({static_cast<TokenId>(i), logits[i], 0.0});
  }
  const auto is_better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  if (options_.top_k != 0 && options_.top_k < candidates_.size()) {
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(options_.top_k);
    std::nth_element(candidates_.begin(), end, candidates_.end(), is_better);
    candidates_.erase(end, candidates_.end());
  }
  std::sort(candidates_.begin(), candidates_.end(), is_better);
}

// top-p, then min-p.
void Sampler::filter() {
  const double best = candidates_.front().logit;
  double sum = 0;
  for (Candidate& each : candidates_) {
    each.probability = std::exp(static_cast<double>(each.logit) - best);
    sum += each.probability;
  }
  std::size_t num_left = candidates_.size();
  if (options_.top_p < 1.0) {
    double reached = 0;
    num_left = 0;
    while (num_left < candidates_.size() && (num_left == 0 || reached < options_.top_p * sum)) {
      reached += candidates_[num_left++].probability;
    }
  }
  // Probabilities are relative to the most likely one, which is 1.
  while (num_left > 1 && candidates_[num_left - 1].probability < options_.min_p) --num_left;
  candidates_.resize(num_left);
}

TokenId Sampler::sample(std::span<const float> logits) {
  if (options_.temperature == 0.0) return greatest(logits);
  fill(logits);
  // Beside an infinite logit nothing else is likely.
  if (candidates_.empty() || std::isinf(candidates_.front().logit)) return greatest(logits);
  filter();
  const double best = candidates_.front().logit;
  double sum = 0;
  for (Candidate& each : candidates_) {
    each.probability = std::exp((static_cast<double>(each.logit) - best) / options_.temperature);
    sum += each.probability;
  }
  double left = uniform() * sum;
  for (const Candidate& each : candidates_) {
    left -= each.probability;
    if (left < 0) return each.token;
  }
  return candidates_.back().token;  // what rounding left over
}

}  // namespace kvarto
