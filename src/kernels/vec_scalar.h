// 4 floats in an array: the vector type of the kernels that run everywhere, with no intrinsics.

#pragma once

#include "kernels/kernels.h"
#include "kernels/unroll_inl.h"

namespace kvarto::scalar {

inline constexpr int kLanes = 4;
inline constexpr int kAccumulators = 4;

struct Vec {
  float lane[kLanes];
};

template <typename Operation>
KVARTO_INLINE Vec each(const Operation& operation) {
  Vec x;
  for (int i = 0; i < kLanes; ++i) x.lane[i] = operation(i);
  return x;
}

KVARTO_INLINE Vec set1(float x) {
  return each([&](int) { return x; });
}
KVARTO_INLINE Vec zero() { return set1(0.0f); }
KVARTO_INLINE Vec load(const float* p) {
  return each([&](int i) { return p[i]; });
}
KVARTO_INLINE void store(float* p, const Vec& a) {
  for (int i = 0; i < kLanes; ++i) p[i] = a.lane[i];
}
KVARTO_INLINE Vec add(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] + b.lane[i]; });
}
KVARTO_INLINE Vec sub(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] - b.lane[i]; });
}
KVARTO_INLINE Vec mul(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] * b.lane[i]; });
}
KVARTO_INLINE Vec div(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] / b.lane[i]; });
}
KVARTO_INLINE Vec max(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
KVARTO_INLINE Vec min(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
// a * b + c, rounded twice where the target has no fused instruction.
KVARTO_INLINE Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
KVARTO_INLINE bool is_any_greater(const Vec& a, const Vec& b) {
  bool is_greater = false;
  for (int i = 0; i < kLanes; ++i) is_greater |= a.lane[i] > b.lane[i];
  return is_greater;
}
KVARTO_INLINE float first_lane(const Vec& a) { return a.lane[0]; }
KVARTO_INLINE float reduce_max(const Vec& a) {
  float largest = a.lane[0];
  for (int i = 1; i < kLanes; ++i) largest = a.lane[i] > largest ? a.lane[i] : largest;
  return largest;
}
KVARTO_INLINE Vec lane_numbers() {
  return each([](int i) { return static_cast<float>(i); });
}
// x where first <= lane number < end, otherwise `other`.
KVARTO_INLINE Vec select_lanes(const Vec& lane, float first, float end, const Vec& x,
                               const Vec& other) {
  return each([&](int i) {
    return lane.lane[i] >= first && lane.lane[i] < end ? x.lane[i] : other.lane[i];
  });
}

KVARTO_INLINE float exp2_lane(float x) {
  if (x < -126.0f) return 0.0f;
  const float floor = __builtin_floorf(x);
  const float r = x - floor;
  float p = 0.00187757669f;
  p = p * r + 0.00898933969f;
  p = p * r + 0.0558263175f;
  p = p * r + 0.240153611f;
  p = p * r + 0.693153083f;
  p = p * r + 0.99999994f;
  if (!(floor < 128.0f)) return p * floor;  // NaN and infinity stay what they are
  const std::uint32_t bits = static_cast<std::uint32_t>(static_cast<int>(floor) + 127) << 23;
  float power = 0;
  __builtin_memcpy(&power, &bits, sizeof power);
  return p * power;
}
// 2^x for x < 128; exactly 0 below 2^-126, NaN for NaN. The polynomial is that of vec_avx512.h.
KVARTO_INLINE Vec exp2(const Vec& x) {
  return each([&](int i) { return exp2_lane(x.lane[i]); });
}

KVARTO_INLINE float float_of(std::uint32_t bits) {
  float x = 0;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
KVARTO_INLINE std::uint32_t bits_of(float x) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

// IEEE 754 binary16 to binary32; exact.
// Not inlined: the kernels would be ten times larger.
[[gnu::noinline]] inline float f32_from_f16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity, NaN (made quiet)
    const std::uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
    return float_of(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13) | quiet);
  }
  if (magnitude < 0x400u) {  // zero, subnormal: magnitude * 2^-24
    const float x = static_cast<float>(magnitude) * 0x1p-24f;
    return sign != 0 ? -x : x;
  }
  return float_of(sign | ((magnitude << 13) + (112u << 23)));
}

// binary32 to binary16, to nearest, ties to even.
[[gnu::noinline]] inline std::uint16_t f16_from_f32(float x) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: units of 2^-24, by the adder's rounding
    half = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  } else {
    half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}
inline std::uint16_t bf16_from_f32(float x) {
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <Element E>
KVARTO_INLINE float load_element(const std::byte* p) {
  if constexpr (E == Element::kF32) {
    float x = 0;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  } else {
    std::uint16_t half = 0;
    __builtin_memcpy(&half, p, sizeof half);
    if constexpr (E == Element::kF16) return f32_from_f16(half);
    return float_of(std::uint32_t{half} << 16);
  }
}
template <Element E>
KVARTO_INLINE void store_element(std::byte* p, float x) {
  if constexpr (E == Element::kF32) {
    __builtin_memcpy(p, &x, sizeof x);
  } else {
    const std::uint16_t half = E == Element::kF16 ? f16_from_f32(x) : bf16_from_f32(x);
    __builtin_memcpy(p, &half, sizeof half);
  }
}

// The first `count` elements, 0 beyond; touches no byte past them.
template <Element E>
KVARTO_INLINE Vec load_partial(const std::byte* p, int count) {
  constexpr int kBytes = E == Element::kF32 ? 4 : 2;
  return each([&](int i) { return i < count ? load_element<E>(p + i * kBytes) : 0.0f; });
}
template <Element E>
KVARTO_INLINE Vec load_elements(const std::byte* p) {
  return load_partial<E>(p, kLanes);
}
template <Element E>
KVARTO_INLINE void store_partial(std::byte* p, const Vec& x, int count) {
  constexpr int kBytes = E == Element::kF32 ? 4 : 2;
  for (int i = 0; i < count; ++i) store_element<E>(p + i * kBytes, x.lane[i]);
}
template <Element E>
KVARTO_INLINE void store_elements(std::byte* p, const Vec& x) {
  store_partial<E>(p, x, kLanes);
}

// Lane i = sum of the lanes of a[i].
KVARTO_INLINE Vec reduce_each(const Vec* a) {
  return each([&](int i) { return (a[i].lane[0] + a[i].lane[2]) + (a[i].lane[1] + a[i].lane[3]); });
}

KVARTO_INLINE void transpose(Vec* r) {
  for (int i = 0; i < kLanes; ++i) {
    for (int j = i + 1; j < kLanes; ++j) {
      const float x = r[i].lane[j];
      r[i].lane[j] = r[j].lane[i];
      r[j].lane[i] = x;
    }
  }
}

}  // namespace kvarto::scalar
