// 32 weights as 16-bit integers and their products with activations, without intrinsics.

#pragma once

#include "kernels/vec_scalar.h"

namespace kvarto::scalar {

struct Words {
  std::int16_t word[32];
};
struct Sums {
  std::int64_t lane[kLanes];  // 64 products of a block of 256 in each: 32 bits could overflow
};

template <typename Function>
KVARTO_INLINE Words each_word(const Function& function) {
  Words words;
  for (int i = 0; i < 32; ++i) words.word[i] = static_cast<std::int16_t>(function(i));
  return words;
}

KVARTO_INLINE Sums zero_sums() { return {}; }
KVARTO_INLINE Sums add_products(const Sums& sums, const Words& w, const std::int16_t* a) {
  Sums result = sums;
  for (int i = 0; i < 32; ++i) result.lane[i / 8] += std::int32_t{w.word[i]} * a[i];
  return result;
}
KVARTO_INLINE Vec to_vec(const Sums& sums) {
  return each([&](int i) { return static_cast<float>(sums.lane[i]); });
}

KVARTO_INLINE float load_half(const std::byte* p) { return load_element<Element::kF16>(p); }
KVARTO_INLINE Vec load_half_to_all(const std::byte* p) { return set1(load_half(p)); }
KVARTO_INLINE int byte_at(const std::byte* p, int i) { return static_cast<int>(p[i]); }
KVARTO_INLINE int signed_byte_at(const std::byte* p, int i) {
  const int x = byte_at(p, i);
  return x < 128 ? x : x - 256;
}

KVARTO_INLINE Words load_bytes(const std::byte* p) {
  return each_word([&](int i) { return signed_byte_at(p, i); });
}
KVARTO_INLINE int half_at(const std::byte* p, int i) {
  return i < 16 ? byte_at(p, i) & 15 : byte_at(p, i - 16) >> 4;
}
// 16 bytes: their low halves, then their high halves.
KVARTO_INLINE Words load_halves_less_8(const std::byte* p) {
  return each_word([&](int i) { return half_at(p, i) - 8; });
}
// The same with a fifth bit for each, from the 32 bits at `high`; less 16.
KVARTO_INLINE Words load_fives_less_16(const std::byte* p, const std::byte* high) {
  return each_word([&](int i) {
    const int fifth = (byte_at(high, i / 8) >> (i % 8)) & 1;
    return half_at(p, i) + 16 * fifth - 16;
  });
}

// Codes of a block of 256 come 64 at a time: from 32 bytes, low halves and high halves.
KVARTO_INLINE void load_fours(const std::byte* p, Words* words) {
  words[0] = each_word([&](int i) { return byte_at(p, i) & 15; });
  words[1] = each_word([&](int i) { return byte_at(p, i) >> 4; });
}
// The fifth bits are bits 2 `step` and 2 `step` + 1 of the 32 bytes at `high`.
KVARTO_INLINE void load_fives(const std::byte* p, const std::byte* high, int step, Words* words) {
  const auto fifth = [&](int i, int bit) { return ((byte_at(high, i) >> bit) & 1) * 16; };
  words[0] = each_word([&](int i) { return (byte_at(p, i) & 15) + fifth(i, 2 * step); });
  words[1] = each_word([&](int i) { return (byte_at(p, i) >> 4) + fifth(i, 2 * step + 1); });
}
// Half a block of q6_K: 64 bytes of low parts, 32 bytes of high parts; 4 x 32 codes less 32.
KVARTO_INLINE void load_sixes_less_32(const std::byte* p, const std::byte* high, Words* words) {
  for (int k = 0; k < 4; ++k) {
    words[k] = each_word([&](int i) {
      const int both = byte_at(p, i + 32 * (k % 2));
      const int low = k < 2 ? both & 15 : both >> 4;
      return low + 16 * ((byte_at(high, i) >> (2 * k)) & 3) - 32;
    });
  }
}

// Scales of runs, one word each.
struct RunScales {
  int scales[16];
};
KVARTO_INLINE RunScales load_scales_8(std::uint64_t bytes) {  // for runs of 32
  RunScales s = {};
  for (int i = 0; i < 8; ++i) s.scales[i] = static_cast<int>((bytes >> (8 * i)) & 255);
  return s;
}
KVARTO_INLINE RunScales load_scales_16(const std::byte* p) {  // for runs of 16
  RunScales s;
  for (int i = 0; i < 16; ++i) s.scales[i] = signed_byte_at(p, i);
  return s;
}
// words x scale of run `run` of 32.
KVARTO_INLINE Words scale_run(const Words& words, const RunScales& s, int run) {
  return each_word([&](int i) { return words.word[i] * s.scales[run]; });
}
// words x scales of the runs 2 `pair` and 2 `pair` + 1 of 16.
KVARTO_INLINE Words scale_run_pair(const Words& words, const RunScales& s, int pair) {
  return each_word([&](int i) { return words.word[i] * s.scales[2 * pair + i / 16]; });
}

// Sums of eight runs; here already added up.
using Eight = float;
KVARTO_INLINE Eight zero_eight() { return 0; }
// sums + m x minima[i] x activations[i].
KVARTO_INLINE Eight add_minima(Eight sums, std::uint64_t minima, const float* activations,
                               const std::byte* m) {
  float sum = 0;
  for (int i = 0; i < 8; ++i) {
    sum += static_cast<float>((minima >> (8 * i)) & 255) * activations[i];
  }
  return sums + sum * load_half(m);
}
// In lanes that add up to their sum.
KVARTO_INLINE Vec spread(Eight x) {
  return each([&](int i) { return i == 0 ? x : 0.0f; });
}

// Rounds kLanes floats to nearest even and saturates to 16 bits.
KVARTO_INLINE void store_words(std::int16_t* p, const Vec& x) {
  for (int i = 0; i < kLanes; ++i) {
    const float y = x.lane[i] > 32767.0f ? 32767.0f : x.lane[i];
    // Adding 1.5 x 2^23 leaves no bits for fractions: the addition rounds. NaN becomes a number.
    const float z = (y > -32768.0f ? y : -32768.0f) + 12582912.0f;
    p[i] = static_cast<std::int16_t>(static_cast<std::int32_t>(bits_of(z) - bits_of(12582912.0f)));
  }
}
KVARTO_INLINE Vec words_to_vec(const std::int16_t* p) {
  return each([&](int i) { return static_cast<float>(p[i]); });
}
KVARTO_INLINE void store_all(std::int16_t* p, const Words& words) {
  for (int i = 0; i < 32; ++i) p[i] = words.word[i];
}

}  // namespace kvarto::scalar
