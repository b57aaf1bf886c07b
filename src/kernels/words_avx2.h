// 32 weights as 16-bit integers and their products with activations, with AVX2.

#pragma once

#include "kernels/vec_avx2.h"

namespace kvarto::avx2 {

struct Words {
  __m256i low;  // the first 16
  __m256i high;
};
using Sums = __m256i;  // 8 lanes of 32 bits

KVARTO_INLINE Sums zero_sums() { return _mm256_setzero_si256(); }
KVARTO_INLINE __m256i load_32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
KVARTO_INLINE __m128i load_16(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
// Adds products of neighbours, four to a lane.
KVARTO_INLINE Sums add_products(Sums sums, const Words& w, const std::int16_t* a) {
  const __m256i low = _mm256_madd_epi16(w.low, load_32(a));
  const __m256i high = _mm256_madd_epi16(w.high, load_32(a + 16));
  return _mm256_add_epi32(sums, _mm256_add_epi32(low, high));
}
KVARTO_INLINE Vec to_vec(Sums sums) { return _mm256_cvtepi32_ps(sums); }

KVARTO_INLINE float load_half(const std::byte* p) {
  std::uint16_t bits = 0;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _cvtsh_ss(bits);
}

KVARTO_INLINE Vec load_half_to_all(const std::byte* p) {
  std::int16_t bits = 0;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _mm256_cvtph_ps(_mm_set1_epi16(bits));
}

KVARTO_INLINE __m256i low_4(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
KVARTO_INLINE __m256i high_4(__m256i x) { return low_4(_mm256_srli_epi16(x, 4)); }
KVARTO_INLINE Words signed_words(__m256i x) {
  return {_mm256_cvtepi8_epi16(_mm256_castsi256_si128(x)),
          _mm256_cvtepi8_epi16(_mm256_extracti128_si256(x, 1))};
}
KVARTO_INLINE Words load_bytes(const std::byte* p) { return signed_words(load_32(p)); }

// 16 bytes: their low halves, then their high halves.
KVARTO_INLINE __m256i split_16(const std::byte* p) {
  const __m128i x = load_16(p);
  return low_4(_mm256_set_m128i(_mm_srli_epi16(x, 4), x));
}
KVARTO_INLINE Words load_halves_less_8(const std::byte* p) {
  return signed_words(_mm256_sub_epi8(split_16(p), _mm256_set1_epi8(8)));
}
// The same with a fifth bit for each, from the 32 bits at `high`; less 16.
KVARTO_INLINE Words load_fives_less_16(const std::byte* p, const std::byte* high) {
  std::int32_t bits = 0;
  __builtin_memcpy(&bits, high, sizeof bits);
  // Byte i of the bits to 8 lanes, one bit of it to each.
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(bits),
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i mask = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
  const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask);
  const __m256i less = _mm256_andnot_si256(is_set, _mm256_set1_epi8(-16));
  return signed_words(_mm256_or_si256(split_16(p), less));
}

// Codes of a block of 256 come 64 at a time: from 32 bytes, low halves and high halves.
KVARTO_INLINE void load_fours(const std::byte* p, Words* words) {
  const __m256i x = load_32(p);
  words[0] = signed_words(low_4(x));
  words[1] = signed_words(high_4(x));
}
// The fifth bits are bits 2 `step` and 2 `step` + 1 of the 32 bytes at `high`.
KVARTO_INLINE void load_fives(const std::byte* p, const std::byte* high, int step, Words* words) {
  const __m256i x = load_32(p);
  const __m256i h = load_32(high);
  const auto fifth = [&](int bit) __attribute__((always_inline)) {
    const __m256i mask = _mm256_set1_epi8(static_cast<char>(1 << bit));
    const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(h, mask), mask);
    return _mm256_and_si256(is_set, _mm256_set1_epi8(16));
  };
  words[0] = signed_words(_mm256_or_si256(low_4(x), fifth(2 * step)));
  words[1] = signed_words(_mm256_or_si256(high_4(x), fifth(2 * step + 1)));
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
struct RunScales {
  alignas(32) std::int16_t scales[16];
};
KVARTO_INLINE __m128i eight_bytes(std::uint64_t x) {
  return _mm_cvtsi64_si128(static_cast<long long>(x));
}
KVARTO_INLINE RunScales load_scales_8(std::uint64_t bytes) {  // for runs of 32
  RunScales s;
  _mm_store_si128(reinterpret_cast<__m128i*>(s.scales), _mm_cvtepu8_epi16(eight_bytes(bytes)));
  return s;
}
KVARTO_INLINE RunScales load_scales_16(const std::byte* p) {  // for runs of 16
  RunScales s;
  _mm256_store_si256(reinterpret_cast<__m256i*>(s.scales), _mm256_cvtepi8_epi16(load_16(p)));
  return s;
}
KVARTO_INLINE Words scale_halves(const Words& words, std::int16_t low, std::int16_t high) {
  return {_mm256_mullo_epi16(words.low, _mm256_set1_epi16(low)),
          _mm256_mullo_epi16(words.high, _mm256_set1_epi16(high))};
}
// words x scale of run `run` of 32.
KVARTO_INLINE Words scale_run(const Words& words, const RunScales& s, int run) {
  return scale_halves(words, s.scales[run], s.scales[run]);
}
// words x scales of the runs 2 `pair` and 2 `pair` + 1 of 16.
KVARTO_INLINE Words scale_run_pair(const Words& words, const RunScales& s, int pair) {
  return scale_halves(words, s.scales[2 * pair], s.scales[2 * pair + 1]);
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
KVARTO_INLINE Vec spread(Eight x) { return x; }

// Rounds kLanes floats to nearest even and saturates to 16 bits.
KVARTO_INLINE void store_words(std::int16_t* p, Vec x) {
  const __m256i y = _mm256_cvtps_epi32(x);
  const __m128i z = _mm_packs_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), z);
}
KVARTO_INLINE Vec words_to_vec(const std::int16_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(load_16(p)));
}
KVARTO_INLINE void store_all(std::int16_t* p, const Words& words) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16), words.high);
}

}  // namespace kvarto::avx2
