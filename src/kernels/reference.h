// Attention in double precision, written for reading: the definition of what kernels compute.

#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace kvarto {

// One query head against the rows of one KV head.
//
//   score[i] = scale * (q . k[i]);  then soft_cap * tanh(score / soft_cap) if soft_cap > 0;
//   then score + slope * (i - query_position)
//   out = sum_i exp(score[i]) v[i] / Z,  Z = exp(sink) + sum_i exp(score[i]),  lse = ln Z
// over the rows i in [first_row, end_row). Without rows out is 0 and lse is the sink or -infinity.
struct ReferenceCall {
  std::span<const float> q;  // [qk_dim]
  std::span<const float> k;  // [rows][qk_dim], dequantised
  std::span<const float> v;  // [rows][v_dim], dequantised
  std::uint64_t qk_dim = 0;
  std::uint64_t v_dim = 0;
  std::uint64_t first_row = 0;
  std::uint64_t end_row = 0;
  double scale = 1;
  double soft_cap = 0;
  double slope = 0;
  std::uint64_t query_position = 0;
  std::optional<double> sink;
};

struct ReferenceResult {
  std::vector<double> out;  // [v_dim]
  double lse = -std::numeric_limits<double>::infinity();
};

[[nodiscard]] ReferenceResult reference_attention(const ReferenceCall& call);

}  // namespace kvarto
