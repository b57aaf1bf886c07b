// Formats whose scales follow the elements of a row: int8, int4, the 4-bit floating point formats,
// and 8-bit floating point with and without scales.
//
// A group with an infinity or a NaN gets a scale that is NaN, so that all of it reads back as NaN
// and is seen. A group of zeros has scale 0 (or the smallest there is).

#pragma once

namespace kvarto::KVARTO_ISA {

KVARTO_INLINE void store_f32(std::byte* to, float x) { __builtin_memcpy(to, &x, sizeof x); }
KVARTO_INLINE float load_f32(const std::byte* from) {
  float x = 0;
  __builtin_memcpy(&x, from, sizeof x);
  return x;
}

// The nearest integer to x / divisor within [-last, last], ties to even.
KVARTO_INLINE std::int32_t nearest_code(float x, float divisor, float last) {
  const float y = x / divisor;
  const float low = y > -last ? y : -last;
  const float bounded = low < last ? low : last;
  constexpr float kMagic = 0x1.8p23f;  // its last place is 1
  return static_cast<std::int32_t>(bits_of(bounded + kMagic) - bits_of(kMagic));
}

KVARTO_INLINE float group_scale(const float* x, std::size_t count, float last) {
  const std::uint32_t magnitude = largest_magnitude(x, count);
  return magnitude < kInfinityBits ? float_of(magnitude) / last : float_of(kNanBits);
}

// What elements are divided by: with a scale of 0 their codes are 0.
KVARTO_INLINE float divisor_of(float scale) { return scale > 0 ? scale : float_of(kInfinityBits); }

KVARTO_INLINE std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }

// int8: q = nearest(x / s), s = largest magnitude of the row / 127.
static void encode_int8(const float* __restrict from, std::byte* __restrict to, std::size_t count) {
  const float scale = group_scale(from, count, 127);
  const float divisor = divisor_of(scale);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<std::byte>(nearest_code(from[i], divisor, 127));
  }
  store_f32(to + count, scale);
}
static void decode_int8(const std::byte* __restrict from, float* __restrict to, std::size_t count) {
  const float scale = load_f32(from + count);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(std::int32_t{static_cast<std::int8_t>(from[i])}) * scale;
  }
}

// Two codes of 4 bits a byte, the first in the low half; a last one alone leaves the high half 0.
KVARTO_INLINE void pack_pairs(const std::uint8_t* codes, std::byte* to, std::size_t count) {
  for (std::size_t i = 0; i < count / 2; ++i) {
    to[i] = static_cast<std::byte>(codes[2 * i] | (codes[2 * i + 1] << 4));
  }
  if (count % 2 != 0) to[count / 2] = static_cast<std::byte>(codes[count - 1]);
}

// int4: q = nearest(x / s) stored as q + 8, s = largest magnitude of the group of 128 / 7.
inline constexpr std::size_t kInt4Group = 128;
static void encode_int4(const float* __restrict from, std::byte* __restrict to, std::size_t count) {
  std::byte* scales = to + (count + 1) / 2;
  for (std::size_t first = 0; first < count; first += kInt4Group, scales += 4) {
    const std::size_t num = least(kInt4Group, count - first);
    const float scale = group_scale(from + first, num, 7);
    const float divisor = divisor_of(scale);
    std::uint8_t codes[kInt4Group];
    for (std::size_t i = 0; i < num; ++i) {
      codes[i] = static_cast<std::uint8_t>(nearest_code(from[first + i], divisor, 7) + 8);
    }
    pack_pairs(codes, to + first / 2, num);
    store_f32(scales, scale);
  }
}
static void decode_int4(const std::byte* __restrict from, float* __restrict to, std::size_t count) {
  const std::byte* scales = from + (count + 1) / 2;
  for (std::size_t first = 0; first < count; first += kInt4Group, scales += 4) {
    const std::size_t num = least(kInt4Group, count - first);
    const float scale = load_f32(scales);
    const std::byte* pairs = from + first / 2;
    float* out = to + first;
    for (std::size_t i = 0; i < num / 2; ++i) {
      const auto pair = static_cast<std::int32_t>(pairs[i]);
      out[2 * i] = static_cast<float>((pair & 15) - 8) * scale;
      out[2 * i + 1] = static_cast<float>((pair >> 4) - 8) * scale;
    }
    if (num % 2 != 0) {
      const auto last = static_cast<std::int32_t>(pairs[num / 2]);
      out[num - 1] = static_cast<float>((last & 15) - 8) * scale;
    }
  }
}

// The scale byte of a group of 4-bit numbers, and its value.
// NVFP4 (NVIDIA): E4M3 of largest magnitude / 6, to nearest; the scale of the whole tensor, kept
// outside, is 1. Numbers above 448 x 6 saturate.
struct Nvfp4Scale {
  static constexpr std::size_t kGroup = 16;
  static std::uint8_t of(std::uint32_t magnitude) {
    if (magnitude >= kInfinityBits) return 0x7f;
    return e4m3_from_f32(float_of(magnitude) / 6);
  }
  static float value(std::uint8_t code) { return f32_from_e4m3(code); }
};
// MXFP4 (OCP Microscaling formats 1.0, 6.3): the largest power of two that is at most the largest
// magnitude, over 4, the largest power of two among the elements. What exceeds 6 x scale saturates.
struct Mxfp4Scale {
  static constexpr std::size_t kGroup = 32;
  static std::uint8_t of(std::uint32_t magnitude) {
    if (magnitude >= kInfinityBits) return 255;
    const std::uint32_t exponent = magnitude >> 23;
    return static_cast<std::uint8_t>(exponent > 2 ? exponent - 2 : 0);
  }
  static float value(std::uint8_t code) { return f32_from_ue8m0(code); }
};

template <typename Scale>
static void encode_fp4(const float* __restrict from, std::byte* __restrict to, std::size_t count) {
  std::byte* scales = to + count / 2;
  for (std::size_t first = 0; first < count; first += Scale::kGroup) {
    const float* x = from + first;
    const std::uint8_t code = Scale::of(largest_magnitude(x, Scale::kGroup));
    const float scale = Scale::value(code);
    const bool is_number = scale > 0;  // neither 0 nor NaN
    std::uint8_t codes[Scale::kGroup];
    for (std::size_t i = 0; i < Scale::kGroup; ++i) {
      codes[i] = static_cast<std::uint8_t>(e2m1_from_f32(is_number ? x[i] / scale : 0));
    }
    pack_pairs(codes, to + first / 2, Scale::kGroup);
    *scales++ = static_cast<std::byte>(code);
  }
}
template <typename Scale>
static void decode_fp4(const std::byte* __restrict from, float* __restrict to, std::size_t count) {
  const std::byte* scales = from + count / 2;
  for (std::size_t first = 0; first < count; first += Scale::kGroup) {
    const float scale = Scale::value(static_cast<std::uint8_t>(*scales++));
    const std::byte* pairs = from + first / 2;
    float* out = to + first;
    for (std::size_t i = 0; i < Scale::kGroup / 2; ++i) {
      const auto pair = static_cast<std::uint32_t>(pairs[i]);
      out[2 * i] = f32_from_e2m1(pair & 15) * scale;
      out[2 * i + 1] = f32_from_e2m1(pair >> 4) * scale;
    }
  }
}

static void encode_e4m3(const float* __restrict from, std::byte* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<std::byte>(e4m3_from_f32(from[i]));
}
static void decode_e4m3(const std::byte* __restrict from, float* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = f32_from_e4m3(static_cast<std::uint8_t>(from[i]));
}
static void encode_e5m2(const float* __restrict from, std::byte* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<std::byte>(e5m2_from_f32(from[i]));
}
static void decode_e5m2(const std::byte* __restrict from, float* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = f32_from_e5m2(static_cast<std::uint8_t>(from[i]));
}

// E4M3 with a scale for each group, as DeepSeek's caches are written (FlashMLA, tests/quant.py):
// largest magnitude / 448, at least 1e-4, rounded up to a power of two, whether it is then stored
// as f32 or as UE8M0. Elements: x / scale to nearest; none saturates.
KVARTO_INLINE std::uint32_t power_scale_exponent(std::uint32_t magnitude) {
  const float scale = float_of(magnitude) / 448;
  const std::uint32_t bits = bits_of(scale > 1e-4f ? scale : 1e-4f);
  return (bits + 0x7fffffu) >> 23;
}

template <std::size_t kGroup, bool kIsScaleF32>
static void encode_fp8_scaled(const float* __restrict from, std::byte* __restrict to,
                              std::size_t count) {
  std::byte* scales = to + count;
  for (std::size_t first = 0; first < count; first += kGroup) {
    const std::size_t num = least(kGroup, count - first);
    const std::uint32_t magnitude = largest_magnitude(from + first, num);
    const bool is_finite = magnitude < kInfinityBits;
    const std::uint32_t exponent = is_finite ? power_scale_exponent(magnitude) : 255;
    const float inverse = is_finite ? float_of((254 - exponent) << 23) : 0;
    for (std::size_t i = 0; i < num; ++i) {
      to[first + i] = static_cast<std::byte>(e4m3_from_f32(from[first + i] * inverse));
    }
    if constexpr (kIsScaleF32) {
      store_f32(scales, float_of(is_finite ? exponent << 23 : kNanBits));
      scales += 4;
    } else {
      *scales++ = static_cast<std::byte>(exponent);
    }
  }
}
template <std::size_t kGroup, bool kIsScaleF32>
static void decode_fp8_scaled(const std::byte* __restrict from, float* __restrict to,
                              std::size_t count) {
  const std::byte* scales = from + count;
  for (std::size_t first = 0; first < count; first += kGroup) {
    const std::size_t num = least(kGroup, count - first);
    float scale = 0;
    if constexpr (kIsScaleF32) {
      scale = load_f32(scales);
      scales += 4;
    } else {
      scale = f32_from_ue8m0(static_cast<std::uint8_t>(*scales++));
    }
    for (std::size_t i = 0; i < num; ++i) {
      to[first + i] = f32_from_e4m3(static_cast<std::uint8_t>(from[first + i])) * scale;
    }
  }
}

}  // namespace kvarto::KVARTO_ISA
