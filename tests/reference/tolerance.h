// How far f32 attention may be from the exact result, with the derivation.
//
// Let u = 2^-24 be the unit roundoff and gamma(n) = n u / (1 - n u) the error factor of n
// roundings.
//
// 1. A score is a sum of `dim` products of a rounded, scaled query: error
//      delta <= gamma(dim + 4) * sum_d |scale q_d k_d|
//    (rounding of scale x log2 e, of the scaled query, of products and sums). A soft-cap has slope
//    <= 1 and adds an absolute error of cap x 4e-7 (tanh by exp2 and a division). ALiBi adds one
//    product and one sum: gamma(3) * |slope x distance|.
// 2. exp2 of a difference: the difference rounds once, u * |s - m|, where terms with |s - m| > 30
//    weigh less than 2^-30 and are left out of the maximum; the polynomial adds 2^-21.
//    So a weight has a relative error <= e^(2 delta + 30 u ln 2) - 1 + 2^-21, both in the numerator
//    and in the denominator.
// 3. Sums over `rows` terms, rescaling included: gamma(rows + 8).
// The output is a weighted mean of values, |v| <= max_v: its error is at most
//      max_v * 2 * (weight error + gamma(rows + 8)).

#pragma once

#include <cmath>
#include <cstdint>

namespace kvarto::test {

struct ErrorTerms {
  std::uint64_t dim = 0;
  std::uint64_t rows = 0;
  double largest_dot = 0;  // max over rows of sum_d |scale q_d k_d|
  double soft_cap = 0;
  double largest_bias = 0;  // max of |slope x distance|
};

inline double gamma(double n) {
  const double u = std::ldexp(1.0, -24);
  return n * u / (1 - n * u);
}

inline double score_error(const ErrorTerms& terms) {
  return gamma(static_cast<double>(terms.dim) + 4) * terms.largest_dot + terms.soft_cap * 4e-7 +
         gamma(3) * terms.largest_bias;
}

inline double weight_error(const ErrorTerms& terms) {
  const double u = std::ldexp(1.0, -24);
  return std::expm1(2 * score_error(terms) + 30 * u * std::log(2.0)) + std::ldexp(1.0, -21);
}

// Bound of |out - exact| as a factor of the largest |v|.
inline double output_tolerance(const ErrorTerms& terms) {
  return 2 * (weight_error(terms) + gamma(static_cast<double>(terms.rows) + 8));
}

// Bound of |lse - exact|: the scores', the sum's, and the rounding of the result itself.
inline double lse_tolerance(const ErrorTerms& terms, double lse) {
  return 2 * score_error(terms) + weight_error(terms) + gamma(static_cast<double>(terms.rows) + 8) +
         gamma(4) * std::fabs(lse) + 1e-6;
}

// What the design promises on any data, as max |difference| / max |reference|.
inline constexpr double kPromisedError = 1e-3;

}  // namespace kvarto::test
