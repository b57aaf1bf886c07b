// Small number formats, one number at a time, in a form that compilers vectorise: no branches, no
// tables. Rounding is to nearest, ties to even, unless said otherwise.
//
// Compiled with -ffp-contract=off: every instruction set rounds alike.

#pragma once

namespace kvarto::KVARTO_ISA {

KVARTO_INLINE std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
KVARTO_INLINE float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;
inline constexpr std::uint32_t kNanBits = 0x7fc00000u;
inline constexpr std::uint32_t kSignBit = 0x80000000u;

KVARTO_INLINE std::uint32_t magnitude_bits(float x) { return bits_of(x) & ~kSignBit; }

// IEEE 754 binary16. From 65520 on: infinity.
KVARTO_INLINE std::uint32_t f16_from_f32(float x) {
  const std::uint32_t sign = (bits_of(x) >> 16) & 0x8000u;
  const std::uint32_t magnitude = magnitude_bits(x);
  if (magnitude > kInfinityBits) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude < 0x38800000u) {  // below 2^-14: units of 2^-24, by the adder's rounding
    return sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f));
  }
  return sign | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13);
}
KVARTO_INLINE float f32_from_f16(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  const float tiny = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f;
  std::uint32_t bits = magnitude < 0x400u ? bits_of(tiny) : (magnitude << 13) + (112u << 23);
  bits = magnitude >= 0x7c00u ? kInfinityBits | (magnitude << 13) : bits;
  return float_of(bits | sign);
}

// E4M3 of the OCP 8-bit floating point specification (no infinity, largest 448, one NaN a sign).
// Saturates: what is larger, infinity too, becomes 448. NaN stays NaN.
KVARTO_INLINE std::uint8_t e4m3_from_f32(float x) {
  const std::uint32_t magnitude = magnitude_bits(x);
  const std::uint32_t kept = magnitude < 0x43e00000u ? magnitude : 0x43e00000u;  // 448
  const std::uint32_t normal = (kept + 0x7ffffu + ((kept >> 20) & 1u) - (120u << 23)) >> 20;
  // Below 2^-6 the result counts units of 2^-9, the last place of numbers from 2^14 on.
  const std::uint32_t tiny = bits_of(float_of(kept) + 0x1p14f) - bits_of(0x1p14f);
  const std::uint32_t code = kept < 0x3c800000u ? tiny : normal;
  const std::uint32_t sign = (bits_of(x) >> 24) & 0x80u;
  return static_cast<std::uint8_t>((magnitude > kInfinityBits ? 0x7fu : code) | sign);
}
KVARTO_INLINE float f32_from_e4m3(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fu;
  const float tiny = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-9f;
  std::uint32_t bits = magnitude < 8u ? bits_of(tiny) : (magnitude << 20) + (120u << 23);
  bits = magnitude == 0x7fu ? kNanBits : bits;
  return float_of(bits | ((code & 0x80u) << 24));
}

// E5M2 of the same specification: the upper half of a binary16. Saturates like E4M3, at 57344, so
// that no number becomes an infinity.
KVARTO_INLINE std::uint8_t e5m2_from_f32(float x) {
  const std::uint32_t magnitude = magnitude_bits(x);
  const std::uint32_t kept = magnitude < 0x47600000u ? magnitude : 0x47600000u;  // 57344
  const std::uint32_t normal = (kept + 0xfffffu + ((kept >> 21) & 1u) - (112u << 23)) >> 21;
  // Below 2^-14: units of 2^-16, the last place of numbers from 2^7 on.
  const std::uint32_t tiny = bits_of(float_of(kept) + 0x1p7f) - bits_of(0x1p7f);
  const std::uint32_t code = kept < 0x38800000u ? tiny : normal;
  const std::uint32_t sign = (bits_of(x) >> 24) & 0x80u;
  return static_cast<std::uint8_t>((magnitude > kInfinityBits ? 0x7eu : code) | sign);
}
KVARTO_INLINE float f32_from_e5m2(std::uint8_t code) {
  return f32_from_f16(static_cast<std::uint32_t>(code) << 8);
}

// E2M1 of the OCP Microscaling specification: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
// Saturates at 6. A tie goes to the even code.
KVARTO_INLINE std::uint32_t e2m1_from_f32(float x) {
  const float a = float_of(magnitude_bits(x));
  const int code =
      (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5);
  return static_cast<std::uint32_t>(code) | ((bits_of(x) >> 28) & 8u);
}
KVARTO_INLINE float f32_from_e2m1(std::uint32_t code) {
  const std::uint32_t magnitude = code & 7u;
  const std::uint32_t normal = (magnitude << 22) + (126u << 23);
  const std::uint32_t tiny = magnitude == 0 ? 0 : bits_of(0.5f);
  return float_of((magnitude < 2u ? tiny : normal) | ((code & 8u) << 28));
}

// UE8M0 of the OCP Microscaling specification: powers of two from 2^-127 on; 255 is NaN.
KVARTO_INLINE float f32_from_ue8m0(std::uint8_t code) {
  if (code == 0) return float_of(0x00400000u);
  return float_of(code == 255 ? kNanBits : std::uint32_t{code} << 23);
}

}  // namespace kvarto::KVARTO_ISA
