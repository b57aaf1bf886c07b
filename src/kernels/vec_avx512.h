// 16 floats in a 512-bit register: the vector type of the AVX-512 kernels (F, BW, DQ, VL).

#pragma once

#include <immintrin.h>

#include "kernels/kernels.h"
#include "kernels/unroll_inl.h"

namespace kvarto::KVARTO_ISA {

using Vec = __m512;
inline constexpr int kLanes = 16;
// Accumulators of one inner loop: 16 of 32 registers hide the latency of 4 cycles x 2 units and
// leave room for keys, values and broadcasts.
inline constexpr int kAccumulators = 16;

KVARTO_INLINE Vec zero() { return _mm512_setzero_ps(); }
KVARTO_INLINE Vec set1(float x) { return _mm512_set1_ps(x); }
KVARTO_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
KVARTO_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a); }
KVARTO_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
KVARTO_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
KVARTO_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
KVARTO_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
KVARTO_INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
KVARTO_INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
// a * b + c
KVARTO_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
KVARTO_INLINE bool is_any_greater(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
}
KVARTO_INLINE float reduce_max(Vec a) { return _mm512_reduce_max_ps(a); }
KVARTO_INLINE float first_lane(Vec a) { return _mm512_cvtss_f32(a); }
KVARTO_INLINE Vec lane_numbers() {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
// x where first <= lane number < end, otherwise `other`.
KVARTO_INLINE Vec select_lanes(Vec lane, float first, float end, Vec x, Vec other) {
  const __mmask16 inside = _mm512_cmp_ps_mask(lane, set1(first), _CMP_GE_OQ) &
                           _mm512_cmp_ps_mask(lane, set1(end), _CMP_LT_OQ);
  return _mm512_mask_blend_ps(inside, other, x);
}

// 2^x for x < 128; exactly 0 below 2^-126, NaN for NaN. Polynomial: minimax of 2^r on [0, 1),
// relative error 7.5e-8 (Remez exchange).
KVARTO_INLINE Vec exp2(Vec x) {
  const __mmask16 keep = _mm512_cmp_ps_mask(x, set1(-126.0f), _CMP_NLT_UQ);
  const Vec r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  Vec p = set1(0.00187757669f);
  p = fma(p, r, set1(0.00898933969f));
  p = fma(p, r, set1(0.0558263175f));
  p = fma(p, r, set1(0.240153611f));
  p = fma(p, r, set1(0.693153083f));
  p = fma(p, r, set1(0.99999994f));
  return _mm512_maskz_scalef_ps(keep, p, x);
}

KVARTO_INLINE __m256i round_to_bf16(Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(
      _mm512_srli_epi32(_mm512_mask_blend_epi32(is_nan, rounded, quiet), 16));
}

template <Element E>
KVARTO_INLINE Vec from_half(__m256i x) {
  if constexpr (E == Element::kF16) {
    return _mm512_cvtph_ps(x);
  } else {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
  }
}
template <Element E>
KVARTO_INLINE __m256i to_half(Vec x) {
  if constexpr (E == Element::kF16) {
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  } else {
    return round_to_bf16(x);
  }
}

template <Element E>
KVARTO_INLINE Vec load_elements(const std::byte* p) {
  if constexpr (E == Element::kF32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(p));
  } else {
    return from_half<E>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
}
// The first `count` < kLanes elements, 0 beyond; reads no byte past them.
template <Element E>
KVARTO_INLINE Vec load_partial(const std::byte* p, int count) {
  const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
  if constexpr (E == Element::kF32) {
    return _mm512_maskz_loadu_ps(mask, p);
  } else {
    return from_half<E>(_mm256_maskz_loadu_epi16(mask, p));
  }
}
template <Element E>
KVARTO_INLINE void store_elements(std::byte* p, Vec x) {
  if constexpr (E == Element::kF32) {
    _mm512_storeu_ps(reinterpret_cast<float*>(p), x);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_half<E>(x));
  }
}
template <Element E>
KVARTO_INLINE void store_partial(std::byte* p, Vec x, int count) {
  const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
  if constexpr (E == Element::kF32) {
    _mm512_mask_storeu_ps(p, mask, x);
  } else {
    _mm256_mask_storeu_epi16(p, mask, to_half<E>(x));
  }
}

// out[i] = sum of the lanes of a[i].
KVARTO_INLINE Vec reduce_each(const Vec* a) {
  Vec t[8];
  Vec u[4];
  KVARTO_UNROLL(8, i) {
    t[i] = add(_mm512_unpacklo_ps(a[i], a[i + 8]), _mm512_unpackhi_ps(a[i], a[i + 8]));
  };
  KVARTO_UNROLL(4, i) {
    u[i] = add(_mm512_unpacklo_ps(t[i], t[i + 4]), _mm512_unpackhi_ps(t[i], t[i + 4]));
  };
  const Vec v0 =
      add(_mm512_shuffle_f32x4(u[0], u[1], 0x44), _mm512_shuffle_f32x4(u[0], u[1], 0xee));
  const Vec v1 =
      add(_mm512_shuffle_f32x4(u[2], u[3], 0x44), _mm512_shuffle_f32x4(u[2], u[3], 0xee));
  const Vec w = add(_mm512_shuffle_f32x4(v0, v1, 0x88), _mm512_shuffle_f32x4(v0, v1, 0xdd));
  return _mm512_permutexvar_ps(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), w);
}

// Transposes 16 x 16 floats in place.
KVARTO_INLINE void transpose(Vec* r) {
  Vec t[16];
  KVARTO_UNROLL(8, i) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  };
  KVARTO_UNROLL(4, i) {
    const __m512d a = _mm512_castps_pd(t[4 * i]);
    const __m512d b = _mm512_castps_pd(t[4 * i + 1]);
    const __m512d c = _mm512_castps_pd(t[4 * i + 2]);
    const __m512d d = _mm512_castps_pd(t[4 * i + 3]);
    r[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    r[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  };
  KVARTO_UNROLL(4, i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  };
  KVARTO_UNROLL(4, i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
  };
}

}  // namespace kvarto::KVARTO_ISA
