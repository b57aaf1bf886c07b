// 16 stored bytes as 16 floats in a 512-bit register.

#pragma once

#include "kernels/vec_avx512.h"

namespace kvarto::avx512 {

template <int kPart>
KVARTO_INLINE __m128i part_of(__m128i bytes) {
  static_assert(kPart == 0);
  return bytes;
}

KVARTO_INLINE Vec from_signed_bytes(__m128i bytes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
// bytes - offset
KVARTO_INLINE Vec from_bytes(__m128i bytes, int offset) {
  return _mm512_cvtepi32_ps(
      _mm512_sub_epi32(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(offset)));
}
// As the f16 with the same exponent and mantissa bits, whose bias is 8 larger.
KVARTO_INLINE Vec from_e4m3(__m128i bytes) {
  const __m256i codes = _mm256_cvtepu8_epi16(bytes);
  const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f));
  const __mmask16 is_nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
  const __m256i half =
      _mm256_mask_blend_epi16(is_nan, _mm256_slli_epi16(magnitude, 7), _mm256_set1_epi16(0x7e00));
  const __m256i sign = _mm256_slli_epi16(_mm256_sub_epi16(codes, magnitude), 8);
  return mul(_mm512_cvtph_ps(_mm256_or_si256(half, sign)), set1(256));
}
KVARTO_INLINE Vec from_e5m2(__m128i bytes) {
  return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8));
}
KVARTO_INLINE Vec from_e2m1(__m128i codes) {
  return _mm512_permutexvar_ps(
      _mm512_cvtepu8_epi32(codes),
      _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6));
}

// Byte j: bit j of `bits`, as 16 or 0.
KVARTO_INLINE __m128i fifth_bits(std::uint32_t bits) {
  return _mm_maskz_set1_epi8(static_cast<__mmask16>(bits), 16);
}

}  // namespace kvarto::avx512
