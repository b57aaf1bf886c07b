// How far the attention of one head may be from the exact one, by the arithmetic that ran.
//
// Let p[i] be the exact weights, out their mean of the values, u = 2^-24 and
// gamma(n) = n u / (1 - n u). Weights that are all off by factors between 1 - f and 1 + f move a
// mean by at most  ((1 + f) / (1 - f) - 1) x spread,  spread = sum over i of p[i] |v[i] - out|:
// what is common to all weights cancels.
//
// 1. f32. A score is off by at most  delta = gamma(dim + 4) x sum over d of |scale q[d] k[d]|  and
// a
//    weight, exp2 of a difference of scores, by the factor
//      f = e^(2 delta + 30 u ln 2) - 1 + 2^-21
//    (the difference rounds once, terms below 2^-30 weigh nothing, exp2 is exact to 2^-21). The two
//    sums over the rows add  2 gamma(rows + 8) x sum over i of p[i] |v[i]|.
// 2. Integers (Arith::kInt8). Rounding the query moves a score by at most
//      d8 = scale x max|q| x sum over d of |k[d]| / 2Q,
//    so that (1 + f) / (1 - f) grows by the factor e^(2 d8); rounding weights and values adds
//    32/P x max |v|.
// 3. f16 (Arith::kF16), as six standard deviations of independent rounding errors of
//    s = 2^-11 / sqrt(3) each. A product of a score goes through at most 20 of them, which moves
//    the score by  d16 = 6 s sqrt(20 x sum over d of (scale q[d] k[d])^2)  and the output by
//    d16 x sqrt(sum over i of (p[i] (v[i] - out))^2). The 68 roundings of the sums of a chunk of 64
//    rows, each of at most  a = sum over its rows of p[i] |v[i]|,  add
//    6 s sqrt(68 x sum over chunks of a^2); probabilities that lose digits 2^-15 x max |v|.

#pragma once

#include <cstdint>

#include "kernels/reference.h"
#include "kvarto/attention.h"

namespace kvarto {

// What the bound of one query and head follows from: maxima over the rows that it sees, and, of
// sums over these rows, over the elements of its output.
struct HeadMagnitudes {
  std::uint64_t dim = 0;
  std::uint64_t rows = 0;
  double scale = 0;
  double query = 0;               // largest |q[d]|
  double dot = 0;                 // sum over d of |scale q[d] k[d]|
  double square = 0;              // sum over d of (scale q[d] k[d])^2
  double key_sum = 0;             // sum over d of |k[d]|
  double value = 0;               // largest |v[d]|
  double mean = 0;                // sum of p |v|
  double spread = 0;              // sum of p |v - out|
  double independent_spread = 0;  // root of the sum of (p (v - out))^2
  double chunk_mean = 0;          // root of the sum over chunks of (sum of p |v|)^2
};
// Without soft-cap, ALiBi and sink. `exact` is the call's result.
[[nodiscard]] HeadMagnitudes magnitudes_of(const ReferenceCall& call, const ReferenceResult& exact);

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
