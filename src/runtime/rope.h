// Rotary position embedding: the frequencies of a model with its scaling, and rotation tables.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/forward_kernels.h"

namespace kvarto {

struct RopeParameters {
  enum class Scaling : std::uint8_t { kNone, kLinear, kLlama3, kYarn };
  double base = 10'000;
  std::uint32_t dims = 0;  // elements of a head that turn: even, the first ones
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  double original_context = 0;  // tokens; llama3, yarn
  double low_freq_factor = 1;   // llama3
  double high_freq_factor = 4;
  double beta_fast = 32;  // yarn, turns within the original context
  double beta_slow = 1;
  bool is_truncated = true;     // yarn: the ramp begins and ends at whole dimensions
  double attention_factor = 1;  // of cosines and sines
  std::vector<float> divisors;  // [dims / 2], of each frequency; empty: 1
};

struct Rope {
  RopeOrder order = RopeOrder::kHalves;
  std::uint32_t dims = 0;
  std::vector<double> frequencies;  // [dims / 2], radians a token
  double attention_factor = 1;
};

// Sources: Su et al. 2021 (RoFormer); Chen et al. 2023 (linear); Peng et al. 2023 (YaRN), section
// 3.2; Llama 3.1's release for `llama3`.
[[nodiscard]] Rope make_rope(const RopeParameters& parameters, RopeOrder order);

// The attention factor that YaRN takes where none is stated.
[[nodiscard]] double yarn_attention_factor(double factor);

// Fills cosines and sines [num_tokens, dims / 2] of positions first, first + 1, ...
void fill_rotations(const Rope& rope, std::uint64_t first, std::uint64_t num_tokens,
                    std::span<float> cosines, std::span<float> sines);

}  // namespace kvarto
