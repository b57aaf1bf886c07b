// The 16-bit formats by their definition, slowly: independent of the kernels' conversions.

#pragma once

#include <cmath>
#include <cstdint>

namespace kvarto::test {

struct NumberFormat {
  int mantissa_bits;
  int exponent_bits;
  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
inline constexpr NumberFormat kFormatF16{10, 5};
inline constexpr NumberFormat kFormatBF16{7, 8};

// Nearest number of the format, ties to even; beyond the largest: infinity.
inline std::uint16_t encode(NumberFormat f, double x) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const int infinity = ((1 << f.exponent_bits) - 1) << f.mantissa_bits;
  if (std::isnan(x)) return static_cast<std::uint16_t>(infinity | (1 << (f.mantissa_bits - 1)));
  const double magnitude = std::fabs(x);
  if (magnitude == 0) return sign;
  const int smallest = 1 - f.bias();
  const int exponent = std::max(smallest, std::isinf(magnitude) ? 1000 : std::ilogb(magnitude));
  // In units of the last place; nearbyint rounds to even. A carry moves into the exponent.
  const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  const double code = units + std::ldexp(exponent - smallest, f.mantissa_bits);
  return static_cast<std::uint16_t>(sign | (code >= infinity ? infinity : static_cast<int>(code)));
}

inline double decode(NumberFormat f, std::uint16_t code) {
  const double sign = (code & 0x8000) != 0 ? -1.0 : 1.0;
  const int mantissa = code & ((1 << f.mantissa_bits) - 1);
  const int exponent = (code & 0x7fff) >> f.mantissa_bits;
  if (exponent == (1 << f.exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - f.bias() - f.mantissa_bits);
  return sign *
         std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias() - f.mantissa_bits);
}

}  // namespace kvarto::test
