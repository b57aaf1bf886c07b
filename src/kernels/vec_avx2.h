// 8 floats in a 256-bit register: the vector type of the AVX2 + FMA + F16C kernels.

#pragma once

#include <immintrin.h>

#include "kernels/kernels.h"
#include "kernels/unroll_inl.h"

namespace kvarto::avx2 {

using Vec = __m256;
inline constexpr int kLanes = 8;
inline constexpr int kAccumulators = 8;  // of 16 registers; hides 4 to 5 cycles x 2 units

KVARTO_INLINE Vec zero() { return _mm256_setzero_ps(); }
KVARTO_INLINE Vec set1(float x) { return _mm256_set1_ps(x); }
KVARTO_INLINE Vec load(const float* p) { return _mm256_loadu_ps(p); }
KVARTO_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a); }
KVARTO_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
KVARTO_INLINE Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
KVARTO_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
KVARTO_INLINE Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
KVARTO_INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
KVARTO_INLINE Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
// a * b + c
KVARTO_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
KVARTO_INLINE bool is_any_greater(Vec a, Vec b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0;
}
KVARTO_INLINE float first_lane(Vec a) { return _mm256_cvtss_f32(a); }
KVARTO_INLINE float reduce_max(Vec a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
KVARTO_INLINE Vec lane_numbers() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
// x where first <= lane number < end, otherwise `other`.
KVARTO_INLINE Vec select_lanes(Vec lane, float first, float end, Vec x, Vec other) {
  const Vec inside = _mm256_and_ps(_mm256_cmp_ps(lane, set1(first), _CMP_GE_OQ),
                                   _mm256_cmp_ps(lane, set1(end), _CMP_LT_OQ));
  return _mm256_blendv_ps(other, x, inside);
}

// 2^x for x < 128; exactly 0 below 2^-126, NaN for NaN. The polynomial is that of vec_avx512.h.
KVARTO_INLINE Vec exp2(Vec x) {
  const Vec keep = _mm256_cmp_ps(x, set1(-126.0f), _CMP_NLT_UQ);
  const Vec floor = _mm256_floor_ps(x);
  const Vec r = sub(x, floor);
  Vec p = set1(0.00187757669f);
  p = fma(p, r, set1(0.00898933969f));
  p = fma(p, r, set1(0.0558263175f));
  p = fma(p, r, set1(0.240153611f));
  p = fma(p, r, set1(0.693153083f));
  p = fma(p, r, set1(0.99999994f));
  const __m256i exponent =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(floor), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(keep, mul(p, _mm256_castsi256_ps(exponent)));
}

template <Element E>
KVARTO_INLINE Vec from_half(__m128i x) {
  if constexpr (E == Element::kF16) {
    return _mm256_cvtph_ps(x);
  } else {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  }
}
KVARTO_INLINE __m128i round_to_bf16(Vec x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
template <Element E>
KVARTO_INLINE __m128i to_half(Vec x) {
  if constexpr (E == Element::kF16) {
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  } else {
    return round_to_bf16(x);
  }
}

template <Element E>
KVARTO_INLINE Vec load_elements(const std::byte* p) {
  if constexpr (E == Element::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  } else {
    return from_half<E>(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
}
template <Element E>
KVARTO_INLINE void store_elements(std::byte* p, Vec x) {
  if constexpr (E == Element::kF32) {
    _mm256_storeu_ps(reinterpret_cast<float*>(p), x);
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_half<E>(x));
  }
}
// The first `count` < kLanes elements, 0 beyond; touches no byte past them.
template <Element E>
KVARTO_INLINE Vec load_partial(const std::byte* p, int count) {
  constexpr int kBytes = E == Element::kF32 ? 4 : 2;
  alignas(32) std::byte padded[kLanes * kBytes] = {};
  for (int i = 0; i < count; ++i) __builtin_memcpy(padded + i * kBytes, p + i * kBytes, kBytes);
  return load_elements<E>(padded);
}
template <Element E>
KVARTO_INLINE void store_partial(std::byte* p, Vec x, int count) {
  constexpr int kBytes = E == Element::kF32 ? 4 : 2;
  alignas(32) std::byte padded[kLanes * kBytes];
  store_elements<E>(padded, x);
  for (int i = 0; i < count; ++i) __builtin_memcpy(p + i * kBytes, padded + i * kBytes, kBytes);
}

// Lane i = sum of the lanes of a[i].
KVARTO_INLINE Vec reduce_each(const Vec* a) {
  const Vec t0 = _mm256_hadd_ps(a[0], a[1]);
  const Vec t1 = _mm256_hadd_ps(a[2], a[3]);
  const Vec t2 = _mm256_hadd_ps(a[4], a[5]);
  const Vec t3 = _mm256_hadd_ps(a[6], a[7]);
  const Vec u0 = _mm256_hadd_ps(t0, t1);
  const Vec u1 = _mm256_hadd_ps(t2, t3);
  return add(_mm256_permute2f128_ps(u0, u1, 0x20), _mm256_permute2f128_ps(u0, u1, 0x31));
}

// Transposes 8 x 8 floats in place.
KVARTO_INLINE void transpose(Vec* r) {
  Vec t[8];
  KVARTO_UNROLL(4, i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  };
  Vec u[8];
  KVARTO_UNROLL(2, i) {
    u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  };
  KVARTO_UNROLL(4, i) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  };
}

}  // namespace kvarto::avx2
