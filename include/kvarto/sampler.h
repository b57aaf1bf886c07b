// Chooses the next token from the logits of a model.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvarto/result.h"
#include "kvarto/vocabulary.h"

namespace kvarto {

// What may be chosen. The filters act one after the other on what the former left, in the order of
// the fields, on probabilities at temperature 1; the temperature then shapes what is left.
struct SamplerOptions {
  std::uint64_t top_k = 0;   // the most likely ones; 0 = all
  double top_p = 1.0;        // the most likely ones that together reach this probability
  double min_p = 0.0;        // those at least this fraction as likely as the most likely one
  double temperature = 0.0;  // 0 = greedy: the most likely one, of equal ones the first
  std::uint64_t seed = 0;
};

// Equal options, seed and logits give equal tokens: numbers come from SplitMix64 (Steele, Lea and
// Flood 2014), one for every token drawn, none for a greedy one. Not thread-safe; one owner.
class Sampler {
 public:
  // Errors: kInvalidArgument for a temperature, top_p or min_p out of range or not a number.
  [[nodiscard]] static Result<Sampler> create(const SamplerOptions& options);

  // The chosen token. NaNs are never chosen. Requires: logits is not empty.
  [[nodiscard]] TokenId sample(std::span<const float> logits);

 private:
  explicit Sampler(const SamplerOptions& options) : options_(options), state_(options.seed) {}
  struct Candidate {
    TokenId token = 0;
    float logit = 0;
    double probability = 0;
  };
  void fill(std::span<const float> logits);
  void filter();
  [[nodiscard]] double uniform();

  SamplerOptions options_;
  std::uint64_t state_;
  std::vector<Candidate> candidates_;
};

}  // namespace kvarto
