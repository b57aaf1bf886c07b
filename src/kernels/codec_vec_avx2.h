// 8 stored bytes as 8 floats in a 256-bit register.

#pragma once

#include "kernels/vec_avx2.h"

namespace kvarto::avx2 {

// The bytes that become vector kPart of two.
template <int kPart>
KVARTO_INLINE __m128i part_of(__m128i bytes) {
  if constexpr (kPart == 0) return bytes;
  return _mm_srli_si128(bytes, 8);
}

KVARTO_INLINE Vec from_signed_bytes(__m128i bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
// bytes - offset
KVARTO_INLINE Vec from_bytes(__m128i bytes, int offset) {
  return _mm256_cvtepi32_ps(
      _mm256_sub_epi32(_mm256_cvtepu8_epi32(bytes), _mm256_set1_epi32(offset)));
}
// As the f16 with the same exponent and mantissa bits, whose bias is 8 larger.
KVARTO_INLINE Vec from_e4m3(__m128i bytes) {
  const __m128i codes = _mm_cvtepu8_epi16(bytes);
  const __m128i magnitude = _mm_and_si128(codes, _mm_set1_epi16(0x7f));
  const __m128i is_nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f));
  const __m128i half =
      _mm_blendv_epi8(_mm_slli_epi16(magnitude, 7), _mm_set1_epi16(0x7e00), is_nan);
  const __m128i sign = _mm_slli_epi16(_mm_sub_epi16(codes, magnitude), 8);
  return mul(_mm256_cvtph_ps(_mm_or_si128(half, sign)), set1(256));
}
KVARTO_INLINE Vec from_e5m2(__m128i bytes) {
  return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 8));
}
KVARTO_INLINE Vec from_e2m1(__m128i codes) {
  const __m256i wide = _mm256_cvtepu8_epi32(codes);
  const Vec magnitude =
      _mm256_permutevar8x32_ps(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), wide);
  const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(wide, 3), 31);
  return _mm256_or_ps(magnitude, _mm256_castsi256_ps(sign));
}

// Byte j: bit j of `bits`, as 16 or 0.
KVARTO_INLINE __m128i fifth_bits(std::uint32_t bits) {
  const __m128i spread = _mm_shuffle_epi8(_mm_cvtsi32_si128(static_cast<int>(bits)),
                                          _mm_set_epi64x(0x0101010101010101, 0));
  const __m128i own = _mm_set1_epi64x(static_cast<long long>(0x8040201008040201u));
  return _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(spread, own), own), _mm_set1_epi8(16));
}

}  // namespace kvarto::avx2
