// Rows of quantised weights times activations in 16-bit integers, and the weights as f32.
//
// Blocks of 32:  w = d x code, one scale d in f16.
// Blocks of 256: w = d x s x code - m x t, with 8-bit (q6_K) or 6-bit scales s and minima t of runs
// of 16 or 32 codes. s is multiplied into the code before the product; the minima are multiplied
// with the sums of their runs' activations.

#pragma once

#include "kernels/forward_kernels.h"

namespace kvarto::KVARTO_ISA {

struct Q8Weights {
  static constexpr std::uint32_t kBytes = 34;
  KVARTO_INLINE Words words(const std::byte* block) { return load_bytes(block + 2); }
};
struct Q5Weights {
  static constexpr std::uint32_t kBytes = 22;
  KVARTO_INLINE Words words(const std::byte* block) {
    return load_fives_less_16(block + 6, block + 2);
  }
};
struct Q4Weights {
  static constexpr std::uint32_t kBytes = 18;
  KVARTO_INLINE Words words(const std::byte* block) { return load_halves_less_8(block + 2); }
};

template <typename Format>
KVARTO_INLINE Vec add_block32(Vec acc, const std::byte* w, const std::int16_t* codes, float scale) {
  const Sums sums = add_products(zero_sums(), Format::words(w), codes);
  return fma(to_vec(sums), mul(load_half_to_all(w), set1(scale)), acc);
}
// Two chains: one would wait for its additions.
template <typename Format>
KVARTO_INLINE Vec block32_row(const std::byte* w, const RowProductsArgs& args) {
  Vec even = zero();
  Vec odd = zero();
  const std::int16_t* codes = args.codes;
  const float* scales = args.scales;
  const std::uint32_t num_blocks = args.columns / 32;
  for (std::uint32_t b = 0; b + 2 <= num_blocks; b += 2) {
    prefetch_ahead<64>(w);  // pairs of blocks have 36 to 68 bytes
    even = add_block32<Format>(even, w, codes, scales[0]);
    odd = add_block32<Format>(odd, w + Format::kBytes, codes + 32, scales[1]);
    w += std::size_t{2} * Format::kBytes;
    codes += 64;
    scales += 2;
  }
  if (num_blocks % 2 != 0) even = add_block32<Format>(even, w, codes, scales[0]);
  return add(even, odd);
}
template <typename Format>
void block32_products(const RowProductsArgs& args) {
  each_row(args, [&](const std::byte* w) { return block32_row<Format>(w, args); });
}
template <typename Format>
void widen_block32(const std::byte* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 32) {
    std::int16_t codes[32];
    store_all(codes, Format::words(from));
    const Vec d = set1(load_half(from));
    for (int j = 0; j < 32; j += kLanes) store(to + i + j, mul(words_to_vec(codes + j), d));
    from += Format::kBytes;
  }
}

// The 6-bit scales (first 8) and minima (last 8) of q4_K and q5_K, from their 12 bytes: four and
// four in the low 6 bits of bytes 0..7; the others have their low 4 bits in bytes 8..11 (scales
// low, minima high) and their high 2 bits above the first ones.
struct PackedScales {
  std::uint64_t scales;  // a byte each
  std::uint64_t minima;
};
KVARTO_INLINE PackedScales unpack_scales(const std::byte* p) {
  std::uint32_t x[3];
  __builtin_memcpy(x, p, sizeof x);
  const std::uint32_t scales = (x[2] & 0x0f0f0f0fu) | ((x[0] >> 2) & 0x30303030u);
  const std::uint32_t minima = ((x[2] >> 4) & 0x0f0f0f0fu) | ((x[1] >> 2) & 0x30303030u);
  return {(x[0] & 0x3f3f3f3fu) | std::uint64_t{scales} << 32,
          (x[1] & 0x3f3f3f3fu) | std::uint64_t{minima} << 32};
}

// q4_K: d, m, 12 bytes of scales, 128 bytes of codes; q5_K has 32 bytes of fifth bits before them.
template <bool HasFifth>
struct K45Weights {
  static constexpr std::uint32_t kBytes = HasFifth ? 176 : 144;
  static constexpr std::uint32_t kCodes = HasFifth ? 48 : 16;
  KVARTO_INLINE void words(const std::byte* block, int step, Words* out) {
    if constexpr (HasFifth) {
      load_fives(block + kCodes + 32 * step, block + 16, step, out);
    } else {
      load_fours(block + kCodes + 32 * step, out);
    }
  }
};

template <typename Format>
KVARTO_INLINE Vec k45_row(const std::byte* w, const RowProductsArgs& args) {
  Vec acc = zero();
  Eight minima = zero_eight();
  const std::uint32_t num_blocks = args.columns / 256;
  for (std::uint32_t b = 0; b < num_blocks; ++b) {
    const std::int16_t* codes = args.codes + std::size_t{b} * 256;
    prefetch_ahead<Format::kBytes>(w);
    const PackedScales packed = unpack_scales(w + 4);
    const RunScales runs = load_scales_8(packed.scales);
    Sums even = zero_sums();
    Sums odd = zero_sums();
    KVARTO_UNROLL(4, step) {
      Words words[2];
      Format::words(w, step, words);
      even = add_products(even, scale_run(words[0], runs, 2 * step), codes + 64 * step);
      odd = add_products(odd, scale_run(words[1], runs, 2 * step + 1), codes + 64 * step + 32);
    };
    const Vec d = mul(load_half_to_all(w), set1(args.scales[b]));
    acc = fma(to_vec(even), d, fma(to_vec(odd), d, acc));
    minima = add_minima(minima, packed.minima, args.sums + std::size_t{b} * 8, w + 2);
    w += Format::kBytes;
  }
  return sub(acc, spread(minima));
}
template <typename Format>
void k45_products(const RowProductsArgs& args) {
  each_row(args, [&](const std::byte* w) { return k45_row<Format>(w, args); });
}
template <typename Format>
void widen_k45(const std::byte* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 256) {
    const PackedScales packed = unpack_scales(from + 4);
    const float d = load_half(from);
    const float m = load_half(from + 2);
    for (int step = 0; step < 4; ++step) {
      Words words[2];
      Format::words(from, step, words);
      for (int k = 0; k < 2; ++k) {
        std::int16_t codes[32];
        store_all(codes, words[k]);
        const int run = 2 * step + k;
        const Vec scale = set1(d * static_cast<float>((packed.scales >> (8 * run)) & 255));
        const Vec minimum = set1(m * static_cast<float>((packed.minima >> (8 * run)) & 255));
        float* out = to + i + static_cast<std::size_t>(32 * run);
        for (int j = 0; j < 32; j += kLanes) {
          store(out + j, sub(mul(words_to_vec(codes + j), scale), minimum));
        }
      }
    }
    from += Format::kBytes;
  }
}

// q6_K: 128 bytes of low parts, 64 bytes of high parts, 16 scales of runs of 16, d.
static constexpr std::uint32_t kQ6Bytes = 210;
static constexpr std::uint32_t kQ6High = 128;
static constexpr std::uint32_t kQ6Scales = 192;
static constexpr std::uint32_t kQ6D = 208;

KVARTO_INLINE void load_q6_half(const std::byte* block, int half, Words* words) {
  load_sixes_less_32(block + 64 * half, block + kQ6High + 32 * half, words);
}

KVARTO_INLINE Vec q6k_row(const std::byte* w, const RowProductsArgs& args) {
  Vec acc = zero();
  const std::uint32_t num_blocks = args.columns / 256;
  for (std::uint32_t b = 0; b < num_blocks; ++b) {
    const std::int16_t* codes = args.codes + std::size_t{b} * 256;
    prefetch_ahead<kQ6Bytes>(w);
    const RunScales runs = load_scales_16(w + kQ6Scales);
    Sums sums = zero_sums();
    KVARTO_UNROLL(2, half) {
      Words words[4];
      load_q6_half(w, half, words);
      KVARTO_UNROLL(4, k) {
        sums = add_products(sums, scale_run_pair(words[k], runs, 4 * half + k),
                            codes + 128 * half + 32 * k);
      };
    };
    acc = fma(to_vec(sums), mul(load_half_to_all(w + kQ6D), set1(args.scales[b])), acc);
    w += kQ6Bytes;
  }
  return acc;
}
inline void q6k_products(const RowProductsArgs& args) {
  each_row(args, [&](const std::byte* w) { return q6k_row(w, args); });
}
inline void widen_q6k(const std::byte* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 256) {
    const float d = load_half(from + kQ6D);
    for (int half = 0; half < 2; ++half) {
      Words words[4];
      load_q6_half(from, half, words);
      for (int k = 0; k < 4; ++k) {
        std::int16_t codes[32];
        store_all(codes, words[k]);
        float* out = to + i + static_cast<std::size_t>(128 * half + 32 * k);
        for (int j = 0; j < 32; j += kLanes) {
          const auto run = static_cast<std::size_t>(8 * half + 2 * k + j / 16);
          const auto scale = static_cast<float>(static_cast<std::int8_t>(from[kQ6Scales + run]));
          store(out + j, mul(words_to_vec(codes + j), set1(d * scale)));
        }
      }
    }
    from += kQ6Bytes;
  }
}

// What is not a number, or infinite, makes the scale NaN, and with it every product.
KVARTO_INLINE float group_scale(const float* x, std::uint32_t group, float largest_code) {
  Vec largest = zero();
  Vec invalid = zero();
  for (std::uint32_t i = 0; i < group; i += kLanes) {
    const Vec v = load(x + i);
    largest = max(largest, max(v, sub(zero(), v)));
    invalid = fma(v, zero(), invalid);
  }
  return reduce_max(largest) / largest_code + sum_lanes(invalid);
}

inline void code_activations(const CodeActivationsArgs& args) {
  const bool has_sums = args.group == 256;
  const auto largest = static_cast<float>(has_sums ? kMaxCode256 : kMaxCode32);
  for (std::uint32_t g = 0; g < args.count / args.group; ++g) {
    const float* x = args.x + std::size_t{g} * args.group;
    std::int16_t* codes = args.codes + std::size_t{g} * args.group;
    const float scale = group_scale(x, args.group, largest);
    // The smallest scales have no inverse: what they code is as good as 0.
    const float inverse = scale > 1e-37f ? 1.0f / scale : 0.0f;
    for (std::uint32_t i = 0; i < args.group; i += kLanes) {
      store_words(codes + i, mul(load(x + i), set1(inverse)));
    }
    args.scales[g] = scale;
    for (std::uint32_t run = 0; has_sums && run < args.group / kSumRun; ++run) {
      std::int32_t sum = 0;
      for (std::uint32_t i = 0; i < kSumRun; ++i) sum += codes[run * kSumRun + i];
      args.sums[g * (args.group / kSumRun) + run] = static_cast<float>(sum) * scale;
    }
  }
}

inline ForwardKernels make_forward_kernels(const char* isa) {
  ForwardKernels table;
  table.isa = isa;
  const auto set = [&](WeightType type, RowProductsFunction products, WidenFunction widen) {
    table.row_products[static_cast<int>(type)] = products;
    table.widen[static_cast<int>(type)] = widen;
  };
  set(WeightType::kF32, dense_products<Element::kF32>, widen_dense<Element::kF32>);
  set(WeightType::kF16, dense_products<Element::kF16>, widen_dense<Element::kF16>);
  set(WeightType::kBF16, dense_products<Element::kBF16>, widen_dense<Element::kBF16>);
  set(WeightType::kQ8_0, block32_products<Q8Weights>, widen_block32<Q8Weights>);
  set(WeightType::kQ5_0, block32_products<Q5Weights>, widen_block32<Q5Weights>);
  set(WeightType::kQ4_0, block32_products<Q4Weights>, widen_block32<Q4Weights>);
  set(WeightType::kQ4K, k45_products<K45Weights<false>>, widen_k45<K45Weights<false>>);
  set(WeightType::kQ5K, k45_products<K45Weights<true>>, widen_k45<K45Weights<true>>);
  set(WeightType::kQ6K, q6k_products, widen_q6k);
  table.code_activations = code_activations;
  table.rms_norm = rms_norm;
  table.gate = gate;
  table.rotate = rotate;
  return table;
}

}  // namespace kvarto::KVARTO_ISA
