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

//
// Arithmetic in f16 adds random errors, taken as independent, of which kHalfSigmas standard
// deviations are allowed. u16 = 2^-11; a rounding error is at most u16 of the rounded number and
// has a standard deviation of at most u16 / sqrt(3).
// 4. A product of a score goes through at most w roundings, each of a sum of products of
// independent
//    signs: the standard deviation is
//      d16 <= u16 / sqrt(3) * sqrt(w * sum_d (scale q_d k_d)^2).
//    w = 20 in tiles (one of its query, a chain of 16 sums, three sums of four chains), and
//    5 + dim / 32 in rows (one of its query, a chain of dim / 32 sums, four rounds of them).
//    A soft-cap only makes it smaller. The output moves by at most 2 * max_v times it.
// 5. A chunk of 64 rows goes through 64 + 3 roundings of sums of at most its weight times max_v,
// and
//    one of each probability: a standard deviation of u16 / sqrt(3) * sqrt(68) * max_v.
// 6. Probabilities below 2^-10 of their chunk's largest lose digits: 64 * 2^-25 / 2^-4 at most.

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
  bool is_half = false;
  double largest_square = 0;  // max over rows of sum_d (scale q_d k_d)^2
};

// The largest w of both.
inline double half_roundings_of(const ErrorTerms& terms) {
  return std::fmax(20.0, 5.0 + std::ceil(static_cast<double>(terms.dim) / 32));
}

inline constexpr double kHalfSigmas = 6;
inline constexpr double kHalfSigma = 0x1p-11 / 1.7320508075688772;  // u16 / sqrt(3)

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

inline double half_score_error(const ErrorTerms& terms) {
  return terms.is_half
             ? kHalfSigmas * kHalfSigma * std::sqrt(half_roundings_of(terms) * terms.largest_square)
             : 0;
}
inline double half_value_error(const ErrorTerms& terms) {
  return terms.is_half ? kHalfSigmas * kHalfSigma * std::sqrt(68.0) + 0x1p-15 : 0;
}

// Bound of |out - exact| as a factor of the largest |v|.
inline double output_tolerance(const ErrorTerms& terms) {
  return 2 * half_score_error(terms) + half_value_error(terms) +
         2 * (weight_error(terms) + gamma(static_cast<double>(terms.rows) + 8));
}

// Bound of |lse - exact|: the scores', the sum's, and the rounding of the result itself.
inline double lse_tolerance(const ErrorTerms& terms, double lse) {
  return half_score_error(terms) + half_value_error(terms) + 2 * score_error(terms) +
         weight_error(terms) + gamma(static_cast<double>(terms.rows) + 8) +
         gamma(4) * std::fabs(lse) + 1e-6;
}

// What the design promises on any data, as max |difference| / max |reference|.
inline constexpr double kPromisedError = 1e-3;

}  // namespace kvarto::test
