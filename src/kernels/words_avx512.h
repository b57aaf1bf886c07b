// 32 weights as 16-bit integers and their products with activations, with AVX-512 F, BW, DQ, VL.

#pragma once

#include "kernels/vec_avx512.h"

namespace kvarto::KVARTO_ISA {

using Words = __m512i;
using Sums = __m512i;  // 16 lanes of 32 bits

KVARTO_INLINE Sums zero_sums() { return _mm512_setzero_si512(); }
// Adds products of neighbours, two to a lane.
KVARTO_INLINE Sums add_products(Sums sums, Words w, const std::int16_t* a) {
  return _mm512_add_epi32(sums, _mm512_madd_epi16(w, _mm512_loadu_si512(a)));
}
KVARTO_INLINE Vec to_vec(Sums sums) { return _mm512_cvtepi32_ps(sums); }

KVARTO_INLINE float load_half(const std::byte* p) {
  std::uint16_t bits = 0;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _cvtsh_ss(bits);
}

KVARTO_INLINE Vec load_half_to_all(const std::byte* p) {
  std::int16_t bits = 0;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _mm512_cvtph_ps(_mm256_set1_epi16(bits));
}

KVARTO_INLINE __m256i load_32(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
KVARTO_INLINE __m256i low_4(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
KVARTO_INLINE __m256i high_4(__m256i x) { return low_4(_mm256_srli_epi16(x, 4)); }
KVARTO_INLINE Words signed_words(__m256i x) { return _mm512_cvtepi8_epi16(x); }
KVARTO_INLINE Words unsigned_words(__m256i x) { return _mm512_cvtepu8_epi16(x); }

// 32 signed bytes.
KVARTO_INLINE Words load_bytes(const std::byte* p) { return signed_words(load_32(p)); }

// 16 bytes: their low halves, then their high halves.
KVARTO_INLINE __m256i split_16(const std::byte* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return low_4(_mm256_set_m128i(_mm_srli_epi16(x, 4), x));
}
KVARTO_INLINE Words load_halves_less_8(const std::byte* p) {
  return signed_words(_mm256_sub_epi8(split_16(p), _mm256_set1_epi8(8)));
}
// The same with a fifth bit for each, from the 32 bits at `high`; less 16.
KVARTO_INLINE Words load_fives_less_16(const std::byte* p, const std::byte* high) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, high, sizeof bits);
  const __m256i low = split_16(p);
  // Without its fifth bit a code less 16 is negative.
  const __m256i below = _mm256_or_si256(low, _mm256_set1_epi8(-16));
  return signed_words(_mm256_mask_blend_epi8(bits, below, low));
}

// Codes of a block of 256 come 64 at a time: from 32 bytes, low halves and high halves.
KVARTO_INLINE void load_fours(const std::byte* p, Words* words) {
  const __m256i x = load_32(p);
  words[0] = unsigned_words(low_4(x));
  words[1] = unsigned_words(high_4(x));
}
// The fifth bits are bits 2 `step` and 2 `step` + 1 of the 32 bytes at `high`.
KVARTO_INLINE void load_fives(const std::byte* p, const std::byte* high, int step, Words* words) {
  const __m256i x = load_32(p);
  const __m256i h = load_32(high);
  const __m256i fifth = _mm256_set1_epi8(16);
  const __mmask32 first =
      _mm256_test_epi8_mask(h, _mm256_set1_epi8(static_cast<char>(1 << (2 * step))));
  const __mmask32 second =
      _mm256_test_epi8_mask(h, _mm256_set1_epi8(static_cast<char>(2 << (2 * step))));
  words[0] = unsigned_words(_mm256_or_si256(low_4(x), _mm256_maskz_mov_epi8(first, fifth)));
  words[1] = unsigned_words(_mm256_or_si256(high_4(x), _mm256_maskz_mov_epi8(second, fifth)));
}
// Half a block of q6_K: 64 bytes of low parts, 32 bytes of high parts; 4 x 32 codes less 32.
KVARTO_INLINE void load_sixes_less_32(const std::byte* p, const std::byte* high, Words* words) {
  const __m256i a = load_32(p);
  const __m256i b = load_32(p + 32);
  const __m256i h = load_32(high);
  const __m256i two = _mm256_set1_epi8(0x30);
  const auto join = [](__m256i low, __m256i top) __attribute__((always_inline)) {
    return signed_words(_mm256_sub_epi8(_mm256_or_si256(low, top), _mm256_set1_epi8(32)));
  };
  words[0] = join(low_4(a), _mm256_and_si256(_mm256_slli_epi16(h, 4), two));
  words[1] = join(low_4(b), _mm256_and_si256(_mm256_slli_epi16(h, 2), two));
  words[2] = join(high_4(a), _mm256_and_si256(h, two));
  words[3] = join(high_4(b), _mm256_and_si256(_mm256_srli_epi16(h, 2), two));
}

// Scales of runs, one word each.
using RunScales = __m512i;
KVARTO_INLINE __m128i eight_bytes(std::uint64_t x) {
  return _mm_cvtsi64_si128(static_cast<long long>(x));
}
KVARTO_INLINE RunScales load_scales_8(std::uint64_t bytes) {  // for runs of 32
  return _mm512_castsi128_si512(_mm_cvtepu8_epi16(eight_bytes(bytes)));
}
KVARTO_INLINE RunScales load_scales_16(const std::byte* p) {  // for runs of 16
  return _mm512_castsi256_si512(
      _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// words x scale of run `run` of 32.
KVARTO_INLINE Words scale_run(Words words, RunScales scales, int run) {
  const __m512i which = _mm512_set1_epi16(static_cast<short>(run));
  return _mm512_mullo_epi16(words, _mm512_permutexvar_epi16(which, scales));
}
// words x scales of the runs 2 `pair` and 2 `pair` + 1 of 16.
KVARTO_INLINE Words scale_run_pair(Words words, RunScales scales, int pair) {
  const auto first = static_cast<short>(2 * pair);
  const __m512i which = _mm512_inserti64x4(_mm512_set1_epi16(first),
                                           _mm256_set1_epi16(static_cast<short>(first + 1)), 1);
  return _mm512_mullo_epi16(words, _mm512_permutexvar_epi16(which, scales));
}

// Sums of eight runs.
using Eight = __m256;
KVARTO_INLINE Eight zero_eight() { return _mm256_setzero_ps(); }
// sums + m x minima[i] x activations[i].
KVARTO_INLINE Eight add_minima(Eight sums, std::uint64_t minima, const float* activations,
                               const std::byte* m) {
  const __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight_bytes(minima)));
  const __m256 y = _mm256_mul_ps(x, _mm256_loadu_ps(activations));
  return _mm256_fmadd_ps(y, _mm256_set1_ps(load_half(m)), sums);
}
// In lanes that add up to their sum.
KVARTO_INLINE Vec spread(Eight x) { return _mm512_zextps256_ps512(x); }

// Rounds kLanes floats to nearest even and saturates to 16 bits.
KVARTO_INLINE void store_words(std::int16_t* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x)));
}
// The next kLanes words, and signed bytes, as floats.
KVARTO_INLINE Vec words_to_vec(const std::int16_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
KVARTO_INLINE void store_all(std::int16_t* p, Words words) { _mm512_storeu_si512(p, words); }

}  // namespace kvarto::KVARTO_ISA
