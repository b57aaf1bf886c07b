// Keys of the indexer from e4m3 with AVX-512 F, BW, DQ and VL.

#pragma once

#include <immintrin.h>

#include "kernels/index_kernels.h"

namespace kvarto::KVARTO_ISA {

// The largest magnitude of each of 32 codes so far: NaN, 0x7f, is above all numbers.
KVARTO_INLINE __m256i larger_codes(__m256i largest, __m256i codes) {
  return _mm256_max_epu8(largest, _mm256_and_si256(codes, _mm256_set1_epi8(0x7f)));
}
KVARTO_INLINE float nan_if_any(__m256i largest, float x) {
  const __mmask32 is_nan = _mm256_cmpeq_epi8_mask(largest, _mm256_set1_epi8(0x7f));
  return is_nan != 0 ? __builtin_nanf("") : x;
}

// As f16 of the same exponent and mantissa bits, 2^-8 of the number.
KVARTO_INLINE __m512i e4m3_as_f16(__m256i codes) {
  const __m512i wide = _mm512_cvtepu8_epi16(codes);
  const __m512i magnitude = _mm512_and_si512(_mm512_slli_epi16(wide, 7), _mm512_set1_epi16(0x3f80));
  // magnitude | (sign & 0x8000)
  return _mm512_ternarylogic_epi32(magnitude, _mm512_slli_epi16(wide, 8),
                                   _mm512_set1_epi16(static_cast<short>(0x8000)), 0xf8);
}

inline void fill_e4m3_f32(const FillIndexArgs& args) {
  if (args.dim % 32 != 0) return fill_e4m3_f32_plain(args);
  float* out = static_cast<float*>(args.out);
  for (std::uint32_t row = 0; row < args.count; ++row) {
    const std::byte* codes = args.codes + row * args.stride_bytes;
    __m256i largest = _mm256_setzero_si256();
    for (std::uint32_t d = 0; d < args.dim; d += 32, out += 32) {
      const __m256i part = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + d));
      const __m512i halves = e4m3_as_f16(part);
      _mm512_storeu_ps(out, _mm512_cvtph_ps(_mm512_castsi512_si256(halves)));
      _mm512_storeu_ps(out + 16, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)));
      largest = larger_codes(largest, part);
    }
    args.units[row] = nan_if_any(largest, 256);
  }
}

// In eighths, to nearest: (8 + mantissa) x 2^(exponent - 7), sign apart. Numbers without the
// leading bit are below 2^-6 and become 0 either way.
KVARTO_INLINE __m512i e4m3_as_eighths(__m256i codes) {
  const __m512i wide = _mm512_cvtepu8_epi16(codes);
  // ((codes & 7) | 8) << 9
  const __m512i mantissa = _mm512_slli_epi16(
      _mm512_ternarylogic_epi32(wide, _mm512_set1_epi16(7), _mm512_set1_epi16(8), 0xea), 9);
  const __m512i exponent = _mm512_and_si512(_mm512_srli_epi16(wide, 3), _mm512_set1_epi16(15));
  const __m512i shifted =
      _mm512_srlv_epi16(mantissa, _mm512_sub_epi16(_mm512_set1_epi16(15), exponent));
  const __m512i magnitude = _mm512_avg_epu16(shifted, _mm512_setzero_si512());
  const __mmask32 is_negative = _mm512_test_epi16_mask(wide, _mm512_set1_epi16(0x80));
  return _mm512_mask_sub_epi16(magnitude, is_negative, _mm512_setzero_si512(), magnitude);
}

}  // namespace kvarto::KVARTO_ISA
