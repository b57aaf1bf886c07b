// How far the attention of one head may be from the exact one, by the arithmetic that ran.
//
// With u = 2^-24, gamma(n) = n u / (1 - n u), and all maxima over the rows that the query sees:
//
// 1. f32. A score is off by at most  delta = gamma(dim + 4) x sum over d of |scale q[d] k[d]|. A
//    weight, exp2 of a difference of scores, then has the relative error
//      w = e^(2 delta + 30 u ln 2) - 1 + 2^-21
//    (the difference rounds once, terms below 2^-30 weigh nothing, exp2 is exact to 2^-21), once
//    above and once below the fraction; sums over the rows add gamma(rows + 8). An output is off by
//    at most  2 (w + gamma(rows + 8)) x max |v|.
// 2. Integers (Arith::kInt8). Rounding the query moves a score by at most
//      d8 = scale x max|q| x sum over d of |k[d]| / 2Q
//    and a weight by the factor e^(2 d8); rounding weights and values adds 32/P x max |v|.
// 3. f16 (Arith::kF16), as six standard deviations of independent rounding errors of
//    s = 2^-11 / sqrt(3) each. A product of a score goes through at most 20 of them,
//      d16 = 6 s sqrt(20 x sum over d of (scale q[d] k[d])^2),
//    which moves an output by 2 d16 x max |v|; a chunk of 64 rows adds 6 s sqrt(68) + 2^-15.

#pragma once

#include <cstdint>

#include "kernels/reference.h"
#include "kvarto/attention.h"

namespace kvarto {

// What the bound of one query and head follows from. Maxima over the rows that it sees.
struct HeadMagnitudes {
  std::uint64_t dim = 0;
  std::uint64_t rows = 0;
  double scale = 0;
  double query = 0;    // largest |q[d]|
  double dot = 0;      // sum over d of |scale q[d] k[d]|
  double square = 0;   // sum over d of (scale q[d] k[d])^2
  double key_sum = 0;  // sum over d of |k[d]|
  double value = 0;    // largest |v[d]|
};
// Without soft-cap, ALiBi and sink.
[[nodiscard]] HeadMagnitudes magnitudes_of(const ReferenceCall& call);

struct RanArithmetic {
  bool is_half = false;
  bool has_integer_keys = false;
  bool has_integer_values = false;
  std::uint32_t query_bits = 16;  // of integers
};
[[nodiscard]] RanArithmetic ran_arithmetic(const CacheView& view, const AttentionReport& ran);

// The largest |out - exact| of the head.
[[nodiscard]] double output_error_bound(const HeadMagnitudes& head, const RanArithmetic& ran);

}  // namespace kvarto
