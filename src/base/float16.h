// Conversions between 32-bit and 16-bit floating point, bit by bit and without special
// instructions. Kernels have faster ones; these are for cold paths and for checking.

#pragma once

#include <bit>
#include <cstdint>

namespace kvarto {

[[nodiscard]] constexpr float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds to nearest even; NaNs stay NaNs, quiet.
[[nodiscard]] constexpr std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFF'FFFF) > 0x7F80'0000) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

[[nodiscard]] constexpr float float_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t magnitude = bits & 0x7FFF;
  if (magnitude >= 0x7C00) {  // infinity and NaN
    return std::bit_cast<float>(sign | 0x7F80'0000 | ((magnitude & 0x3FF) << 13));
  }
  if (magnitude < 0x400) {  // zero and subnormal: a multiple of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  // The exponent's bias grows from 15 to 127.
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
}

// Rounds to nearest even, to infinity from 65520 on; NaNs stay NaNs, quiet.
[[nodiscard]] constexpr std::uint16_t f16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t magnitude = bits & 0x7FFF'FFFF;
  if (magnitude > 0x7F80'0000) {
    return static_cast<std::uint16_t>(sign | 0x7E00 | ((magnitude >> 13) & 0x3FF));
  }
  if (magnitude >= 0x477F'F000) return static_cast<std::uint16_t>(sign | 0x7C00);
  if (magnitude < 0x3880'0000) {
    // Below 2^-14 the result counts multiples of 2^-24; adding 0.5, whose last mantissa bit is
    // 2^-24, lets the addition itself round to them.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F00'0000));
  }
  const std::uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return static_cast<std::uint16_t>(sign | ((rounded - ((127u - 15u) << 23)) >> 13));
}

}  // namespace kvarto
