// The block formats of ggml (ggml-common.h): 32 elements with one or two f16 numbers in front.
// Encoding gives the bytes of ggml's reference quantisers (ggml-quants.c, quantize_row_*_ref),
// decoding the numbers of its dequantize_row_*, each as f32.
//
// Where the reference is undefined, an infinity or NaN in a block makes the scale NaN: the whole
// block reads back as NaN and is seen.

#pragma once

namespace kvarto::KVARTO_ISA {

inline constexpr int kBlock = 32;

KVARTO_INLINE void store_f16(std::byte* to, float x) {
  const auto half = static_cast<std::uint16_t>(f16_from_f32(x));
  __builtin_memcpy(to, &half, sizeof half);
}
KVARTO_INLINE float load_f16(const std::byte* from) {
  std::uint16_t half = 0;
  __builtin_memcpy(&half, from, sizeof half);
  return f32_from_f16(half);
}

KVARTO_INLINE std::uint32_t largest_magnitude(const float* x, std::size_t count) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = magnitude_bits(x[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// The first element of that magnitude, with its sign; a block of zeros has the positive one.
KVARTO_INLINE float first_of_magnitude(const float* x, std::uint32_t magnitude) {
  if (magnitude == 0) return 0;
  for (int i = 0; i < kBlock; ++i) {
    if (magnitude_bits(x[i]) == magnitude) return x[i];
  }
  return 0;
}

// The smallest of a block of finite numbers, the first of equal ones: zeros of either sign are
// equal. Compared as integers that are ordered like the numbers, which compilers vectorise.
template <typename Number>
KVARTO_INLINE float smallest_by(const float* x, const Number& number) {
  std::int32_t smallest = 0x7fffffff;
  for (int i = 0; i < kBlock; ++i) {
    const auto bits = static_cast<std::int32_t>(bits_of(number(x[i])));
    const std::int32_t key = bits ^ ((bits >> 31) & 0x7fffffff);
    smallest = key < smallest ? key : smallest;
  }
  const float found =
      float_of(static_cast<std::uint32_t>(smallest ^ ((smallest >> 31) & 0x7fffffff)));
  if (found != 0) return found;
  for (int i = 0; i < kBlock; ++i) {
    if (x[i] == 0) return number(x[i]);
  }
  return found;
}
KVARTO_INLINE float smallest_of(const float* x) {
  return smallest_by(x, [](float y) { return y; });
}
KVARTO_INLINE float smallest_of_negated(const float* x) {
  return smallest_by(x, [](float y) { return -y; });
}

KVARTO_INLINE float inverse_or_zero(float scale) { return scale != 0 ? 1.0f / scale : 0.0f; }

// The integer part of x within [0, last]; 0 for NaN.
KVARTO_INLINE std::uint8_t truncated(float x, float last) {
  const float low = x > 0 ? x : 0;
  return static_cast<std::uint8_t>(static_cast<std::int32_t>(low < last ? low : last));
}

// One block of codes of kBits bits, of either shape: scale x (code - offset), where the offset is
// half the number of codes, or scale x code + minimum.
template <int kBits, bool kHasMinimum>
struct NibbleBlock {
  static constexpr int kScaleBytes = kHasMinimum ? 4 : 2;
  static constexpr int kHighBytes = kBits == 5 ? 4 : 0;  // the fifth bits of all codes
  static constexpr int kBytes = kScaleBytes + kHighBytes + kBlock / 2;
  static constexpr int kOffset = 1 << (kBits - 1);
  static constexpr float kLast = (1 << kBits) - 1;

  static void pack(const std::uint8_t* codes, std::byte* to) {
    std::uint32_t high = 0;
    for (int j = 0; j < kBlock / 2; ++j) {
      const int low_half = codes[j];
      const int high_half = codes[j + kBlock / 2];
      to[kScaleBytes + kHighBytes + j] =
          static_cast<std::byte>((low_half & 15) | ((high_half & 15) << 4));
    }
    if constexpr (kBits == 5) {
      for (int j = 0; j < kBlock; ++j) high |= static_cast<std::uint32_t>(codes[j] >> 4) << j;
      __builtin_memcpy(to + kScaleBytes, &high, sizeof high);
    }
  }

  static void unpack(const std::byte* from, std::uint8_t* codes) {
    for (int j = 0; j < kBlock / 2; ++j) {
      const auto pair = static_cast<std::uint8_t>(from[kScaleBytes + kHighBytes + j]);
      codes[j] = pair & 15;
      codes[j + kBlock / 2] = pair >> 4;
    }
    if constexpr (kBits == 5) {
      std::uint32_t high = 0;
      __builtin_memcpy(&high, from + kScaleBytes, sizeof high);
      for (int j = 0; j < kBlock; ++j) codes[j] |= static_cast<std::uint8_t>((high >> j & 1) << 4);
    }
  }

  static void encode_block(const float* x, std::byte* to) {
    std::uint8_t codes[kBlock] = {};
    const std::uint32_t magnitude = largest_magnitude(x, kBlock);
    if (magnitude >= kInfinityBits) {
      store_f16(to, float_of(kNanBits));
      if constexpr (kHasMinimum) store_f16(to + 2, float_of(kNanBits));
    } else if constexpr (kHasMinimum) {
      const float smallest = smallest_of(x);
      const float largest = -smallest_of_negated(x);
      const float scale = (largest - smallest) / kLast;
      const float inverse = inverse_or_zero(scale);
      store_f16(to, scale);
      store_f16(to + 2, smallest);
      for (int i = 0; i < kBlock; ++i) {
        codes[i] = truncated((x[i] - smallest) * inverse + 0.5f, kLast);
      }
    } else {
      const float scale = first_of_magnitude(x, magnitude) / -kOffset;
      const float inverse = inverse_or_zero(scale);
      store_f16(to, scale);
      for (int i = 0; i < kBlock; ++i) {
        codes[i] = truncated(x[i] * inverse + (kOffset + 0.5f), kLast);
      }
    }
    pack(codes, to);
  }

  static void decode_block(const std::byte* from, float* to) {
    std::uint8_t codes[kBlock];
    unpack(from, codes);
    const float scale = load_f16(from);
    if constexpr (kHasMinimum) {
      const float minimum = load_f16(from + 2);
      for (int i = 0; i < kBlock; ++i) {
        to[i] = static_cast<float>(std::int32_t{codes[i]}) * scale + minimum;
      }
    } else {
      for (int i = 0; i < kBlock; ++i) {
        to[i] = static_cast<float>(std::int32_t{codes[i]} - kOffset) * scale;
      }
    }
  }
};

// Scale = largest magnitude / 127; ties away from zero.
struct Q8Block {
  static constexpr int kBytes = 2 + kBlock;

  static void encode_block(const float* x, std::byte* to) {
    const std::uint32_t magnitude = largest_magnitude(x, kBlock);
    if (magnitude >= kInfinityBits) {
      store_f16(to, float_of(kNanBits));
      for (int i = 0; i < kBlock; ++i) to[2 + i] = std::byte{0};
      return;
    }
    const float scale = float_of(magnitude) / 127;
    const float inverse = inverse_or_zero(scale);
    store_f16(to, scale);
    for (int i = 0; i < kBlock; ++i) {
      const float y = x[i] * inverse;
      const float a = float_of(magnitude_bits(y));
      const float bounded =
          a < 127.0f ? a : 127.0f;  // the inverse of a subnormal scale may overflow
      const auto whole = static_cast<std::int32_t>(bounded);
      const std::int32_t rounded = whole + (bounded - static_cast<float>(whole) >= 0.5f ? 1 : 0);
      const auto sign = static_cast<std::int32_t>(bits_of(y)) >> 31;
      to[2 + i] = static_cast<std::byte>((rounded ^ sign) - sign);
    }
  }

  static void decode_block(const std::byte* from, float* to) {
    const float scale = load_f16(from);
    for (int i = 0; i < kBlock; ++i) {
      to[i] = static_cast<float>(std::int32_t{static_cast<std::int8_t>(from[2 + i])}) * scale;
    }
  }
};

// 16 values instead of equal steps. As ggml quantises without an importance matrix: codes with the
// scale that maps the largest magnitude to -127, then the scale that fits these codes best, least
// squares weighted by x^2. No other scale is tried.
struct Iq4NlBlock {
  static constexpr int kBytes = 2 + kBlock / 2;
  static constexpr float kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
  // Below this ggml stores zeros (GROUP_MAX_EPS).
  static constexpr float kSmallest = 1e-15f;

  static int nearest(float x) {
    int index = 0;
    for (int i = 0; i < 15; ++i) index += x >= (kValues[i] + kValues[i + 1]) / 2 ? 1 : 0;
    return index;
  }

  static void encode_block(const float* x, std::byte* to) {
    const std::uint32_t magnitude = largest_magnitude(x, kBlock);
    const bool is_finite = magnitude < kInfinityBits;
    int codes[kBlock] = {};
    float scale = is_finite ? 0 : float_of(kNanBits);
    if (is_finite && !(float_of(magnitude) < kSmallest)) {
      const float inverse = 1 / (first_of_magnitude(x, magnitude) / kValues[0]);
      float sum_qx = 0;
      float sum_qq = 0;
      for (int i = 0; i < kBlock; ++i) {
        codes[i] = nearest(inverse * x[i]);
        const float q = kValues[codes[i]];
        const float weight = x[i] * x[i];
        sum_qx += weight * q * x[i];
        sum_qq += weight * q * q;
      }
      scale = sum_qq > 0 ? sum_qx / sum_qq : 0;
    }
    store_f16(to, scale);
    for (int j = 0; j < kBlock / 2; ++j) {
      to[2 + j] = static_cast<std::byte>(codes[j] | (codes[j + kBlock / 2] << 4));
    }
  }

  static void decode_block(const std::byte* from, float* to) {
    const float scale = load_f16(from);
    for (int j = 0; j < kBlock / 2; ++j) {
      const auto pair = static_cast<std::uint8_t>(from[2 + j]);
      to[j] = kValues[pair & 15] * scale;
      to[j + kBlock / 2] = kValues[pair >> 4] * scale;
    }
  }
};

// Rows of whole blocks.
template <typename Block>
static void encode_blocks(const float* __restrict from, std::byte* __restrict to,
                          std::size_t count) {
  for (std::size_t i = 0; i < count; i += kBlock, to += Block::kBytes) {
    Block::encode_block(from + i, to);
  }
}
template <typename Block>
static void decode_blocks(const std::byte* __restrict from, float* __restrict to,
                          std::size_t count) {
  for (std::size_t i = 0; i < count; i += kBlock, from += Block::kBytes) {
    Block::decode_block(from, to + i);
  }
}

}  // namespace kvarto::KVARTO_ISA
