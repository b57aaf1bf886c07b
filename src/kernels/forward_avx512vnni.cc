// Rows of quantised weights times activations with 8-bit dot products (AVX512-VNNI).
//
// vpdpbusd multiplies unsigned with signed bytes. A 16-bit activation is 256 high + low with two
// signed bytes, a weight's code u an unsigned byte, as stored or with a bias b that is taken off
// again:
//
//   sum of (u - b) x = 256 sum of u high + sum of u low - b sum of x,  exact in 32 bits.
//
// 64 weights are one register: one shift and two products where widening to 16 bits takes four
// conversions on the one port that has them.

#define KVARTO_ISA avx512vnni
#include "kernels/words_avx512.h"
// Order matters: each of these uses what the one before declares.
#include "kernels/forward_inl.h"
// clang-format off
#include "kernels/quantised_inl.h"
// clang-format on

namespace kvarto::avx512vnni {

// 64 activations as pack_codes() writes them.
struct Packed {
  __m512i low;
  __m512i high;
  __m512i correction;  // -b x, added up in the lanes of the products
};
static_assert(sizeof(Packed) == kPackedBytes);
static constexpr std::uint32_t kStep = 64;  // weights of a register

KVARTO_INLINE __m512i load_all(const void* p) { return _mm512_loadu_si512(p); }
KVARTO_INLINE __m512i low_4(__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }

// Codes without a bias are multiplied without the correction.
enum class Bias : std::uint8_t { kNone, kCorrected };
template <Bias B>
KVARTO_INLINE __m512 multiply(__m512i u, const std::byte* packed) {
  const auto* x = reinterpret_cast<const Packed*>(packed);
  const __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), u, load_all(&x->high));
  __m512i sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(high, 8), u, load_all(&x->low));
  if constexpr (B == Bias::kCorrected) sum = _mm512_add_epi32(sum, load_all(&x->correction));
  return _mm512_cvtepi32_ps(sum);
}

inline std::uint8_t bias_of(WeightType type) {
  switch (type) {
    case WeightType::kQ8_0:
      return 128;
    case WeightType::kQ5_0:
      return 16;
    case WeightType::kQ4_0:
      return 8;
    case WeightType::kQ6K:
      return 32;
    default:
      return 0;
  }
}

inline void pack_codes(const PackCodesArgs& args) {
  const __m512i bias = _mm512_set1_epi8(static_cast<char>(bias_of(args.type)));
  std::byte* out = args.out;
  for (std::uint32_t i = 0; i < args.count; i += kStep, out += kPackedBytes) {
    const __mmask32 second = args.count - i >= kStep ? 0xffffffff : 0;  // half a step ends a row
    const __m512i half = _mm512_set1_epi16(128);
    const __m512i a = load_all(args.codes + i);
    const __m512i b = _mm512_maskz_loadu_epi16(second, args.codes + i + 32);
    const auto join = [](__m512i first, __m512i last) __attribute__((always_inline)) {
      return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(first)),
                                _mm512_cvtepi16_epi8(last), 1);
    };
    const __m512i low = join(a, b);
    const __m512i high = join(_mm512_srai_epi16(_mm512_add_epi16(a, half), 8),
                              _mm512_srai_epi16(_mm512_add_epi16(b, half), 8));
    const __m512i upper = _mm512_dpbusd_epi32(_mm512_setzero_si512(), bias, high);
    const __m512i sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(upper, 8), bias, low);
    _mm512_storeu_si512(out, low);
    _mm512_storeu_si512(out + 64, high);
    _mm512_storeu_si512(out + 128, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
  }
}

// Two blocks of 32: codes as bytes, from the addresses of the blocks.
struct Q8Pair {
  static constexpr std::uint32_t kBytes = 34;
  KVARTO_INLINE __m512i codes(const std::byte* a, const std::byte* b) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + 2));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + 2));
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    return _mm512_xor_si512(both, _mm512_set1_epi8(-128));
  }
};
// 16 bytes of each: their low halves, then their high halves.
KVARTO_INLINE __m512i split_pair(const std::byte* a, const std::byte* b) {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
  const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
  const __m512i both = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(first), 0xff00, second);
  return low_4(_mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)));
}
struct Q4Pair {
  static constexpr std::uint32_t kBytes = 18;
  KVARTO_INLINE __m512i codes(const std::byte* a, const std::byte* b) {
    return split_pair(a + 2, b + 2);
  }
};
struct Q5Pair {
  static constexpr std::uint32_t kBytes = 22;
  KVARTO_INLINE __m512i codes(const std::byte* a, const std::byte* b) {
    std::uint32_t first = 0;
    std::uint32_t second = 0;
    __builtin_memcpy(&first, a + 2, sizeof first);
    __builtin_memcpy(&second, b + 2, sizeof second);
    const __mmask64 fifth = first | std::uint64_t{second} << 32;
    const __m512i low = split_pair(a + 6, b + 6);
    return _mm512_mask_add_epi8(low, fifth, low, _mm512_set1_epi8(16));
  }
};

// So many blocks' scales are read ahead of their products: their bytes lie apart, and are
// converted 16 at a time.
static constexpr std::uint32_t kScaleRun = 64;
// out[i] = scale of block i x scales[i], 0 beyond `count`.
template <std::uint32_t BlockBytes>
KVARTO_INLINE void load_scales(const std::byte* w, const float* scales, std::uint32_t count,
                               float* out) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i offsets = _mm512_mullo_epi32(lane, _mm512_set1_epi32(BlockBytes));
  for (std::uint32_t first = 0; first < count; first += kLanes) {
    const std::uint32_t rest = count - first < kLanes ? count - first : std::uint32_t{kLanes};
    const auto mask = static_cast<__mmask16>((1u << rest) - 1);
    const __m512i words = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), mask, offsets,
                                                      w + std::size_t{first} * BlockBytes, 1);
    const Vec d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
    store(out + first, mul(d, _mm512_maskz_loadu_ps(mask, scales + first)));
  }
}

template <typename Pair>
KVARTO_INLINE Vec pair_row(const std::byte* w, const RowProductsArgs& args) {
  constexpr __mmask16 kSecond = 0xff00;
  Vec acc = zero();
  const std::byte* packed = args.packed;
  const std::uint32_t num_blocks = args.columns / 32;
  for (std::uint32_t first = 0; first < num_blocks; first += kScaleRun) {
    const std::uint32_t count = num_blocks - first < kScaleRun ? num_blocks - first : kScaleRun;
    alignas(64) float scales[kScaleRun];
    load_scales<Pair::kBytes>(w, args.scales + first, count, scales);
    for (std::uint32_t b = 0; b + 1 < count; b += 2) {
      prefetch_ahead<64>(w);  // pairs of blocks have 36 to 68 bytes
      const Vec scale =
          _mm512_mask_broadcastss_ps(set1(scales[b]), kSecond, _mm_load_ss(scales + b + 1));
      const __m512i codes = Pair::codes(w, w + Pair::kBytes);
      acc = fma(multiply<Bias::kCorrected>(codes, packed), scale, acc);
      w += std::size_t{2} * Pair::kBytes;
      packed += kPackedBytes;
    }
    if (count % 2 == 0) continue;
    // The last one, twice; the second has no scale.
    const Vec scale = _mm512_maskz_mov_ps(0x00ff, set1(scales[count - 1]));
    acc = fma(multiply<Bias::kCorrected>(Pair::codes(w, w), packed), scale, acc);
  }
  return acc;
}
template <typename Pair>
void pair_products(const RowProductsArgs& args) {
  each_row(args, [&](const std::byte* w) { return pair_row<Pair>(w, args); });
}

// Low halves of 32 bytes, then their high halves.
KVARTO_INLINE __m512i split_32(const std::byte* p) {
  const __m512i both = _mm512_broadcast_i64x4(load_32(p));
  return low_4(_mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4)));
}
// low | (high & mask)
KVARTO_INLINE __m512i join_bits(__m512i low, __m512i high, int mask) {
  constexpr int kOrAnd = 0xf8;  // a | (b & c)
  return _mm512_ternarylogic_epi64(low, high, _mm512_set1_epi8(static_cast<char>(mask)), kOrAnd);
}
// The fifth bits of step `step`, bits 2 `step` and 2 `step` + 1 of 32 bytes, turned to bit 4.
KVARTO_INLINE __m512i turn_fifths(__m512i bits, int step) {
  const long long low = (2 * step + 60) % 64;
  const long long high = (2 * step + 61) % 64;
  return _mm512_rorv_epi64(bits, _mm512_setr_epi64(low, low, low, low, high, high, high, high));
}
// Lanes of step `step`: the scale of its first `run` weights, then that of the next, ...
template <int LanesOfRun>
KVARTO_INLINE Vec scales_of_step(Vec scales, int step) {
  constexpr int kRuns = kLanes / LanesOfRun;
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i run = _mm512_srli_epi32(lane, LanesOfRun == 8 ? 3 : 2);
  return _mm512_permutexvar_ps(_mm512_add_epi32(run, _mm512_set1_epi32(kRuns * step)), scales);
}

template <bool HasFifth>
KVARTO_INLINE Vec k45_packed_row(const std::byte* w, const RowProductsArgs& args) {
  using Format = K45Weights<HasFifth>;
  Vec even = zero();
  Vec odd = zero();
  Eight minima = zero_eight();
  const std::byte* packed = args.packed;
  for (std::uint32_t b = 0; b < args.columns / 256; ++b) {
    prefetch_ahead<Format::kBytes>(w);
    const PackedScales block = unpack_scales(w + 4);
    const Vec d = mul(load_half_to_all(w), set1(args.scales[b]));
    const Vec scales = mul(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(eight_bytes(block.scales))), d);
    __m512i fifths = _mm512_setzero_si512();
    if constexpr (HasFifth) fifths = _mm512_broadcast_i64x4(load_32(w + 16));
    KVARTO_UNROLL(4, step) {
      __m512i codes = split_32(w + Format::kCodes + 32 * step);
      if constexpr (HasFifth) codes = join_bits(codes, turn_fifths(fifths, step), 16);
      Vec& acc = step % 2 == 0 ? even : odd;
      acc = fma(multiply<Bias::kNone>(codes, packed + kPackedBytes * std::size_t{step}),
                scales_of_step<8>(scales, step), acc);
    };
    minima = add_minima(minima, block.minima, args.sums + std::size_t{b} * 8, w + 2);
    w += Format::kBytes;
    packed += 4 * kPackedBytes;
  }
  return sub(add(even, odd), spread(minima));
}
template <bool HasFifth>
void k45_packed_products(const RowProductsArgs& args) {
  each_row(args, [&](const std::byte* w) { return k45_packed_row<HasFifth>(w, args); });
}

// 64 of a half's 128 codes: low halves of its 64 bytes, then high halves; bits 0 and 1, 2 and 3,
// ... of its 32 high bytes belong to codes 0.., 32.., ...
KVARTO_INLINE __m512i q6_codes(__m512i low, __m512i high, int part) {
  const __m512i turns = part == 0 ? _mm512_setr_epi64(60, 60, 60, 60, 62, 62, 62, 62)
                                  : _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2);
  const __m512i four = low_4(part == 0 ? low : _mm512_srli_epi16(low, 4));
  return join_bits(four, _mm512_rorv_epi64(high, turns), 0x30);
}
KVARTO_INLINE Vec q6k_packed_row(const std::byte* w, const RowProductsArgs& args) {
  Vec even = zero();
  Vec odd = zero();
  const std::byte* packed = args.packed;
  for (std::uint32_t b = 0; b < args.columns / 256; ++b) {
    prefetch_ahead<kQ6Bytes>(w);
    const Vec d = mul(load_half_to_all(w + kQ6D), set1(args.scales[b]));
    const __m128i runs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + kQ6Scales));
    const Vec scales = mul(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(runs)), d);
    KVARTO_UNROLL(2, half) {
      const __m512i low = load_all(w + 64 * half);
      const __m512i high = _mm512_broadcast_i64x4(load_32(w + kQ6High + 32 * half));
      even = fma(multiply<Bias::kCorrected>(q6_codes(low, high, 0), packed),
                 scales_of_step<4>(scales, 2 * half), even);
      odd = fma(multiply<Bias::kCorrected>(q6_codes(low, high, 1), packed + kPackedBytes),
                scales_of_step<4>(scales, 2 * half + 1), odd);
      packed += 2 * kPackedBytes;
    };
    w += kQ6Bytes;
  }
  return add(even, odd);
}
inline void q6k_packed_products(const RowProductsArgs& args) {
  each_row(args, [&](const std::byte* w) { return q6k_packed_row(w, args); });
}

void fill_forward(ForwardKernels& kernels);
void fill_forward(ForwardKernels& kernels) {
  const auto set = [&](WeightType type, RowProductsFunction products) {
    kernels.row_products[static_cast<int>(type)] = products;
  };
  kernels.isa = "avx512vnni";
  kernels.pack_codes = pack_codes;
  set(WeightType::kQ8_0, pair_products<Q8Pair>);
  set(WeightType::kQ5_0, pair_products<Q5Pair>);
  set(WeightType::kQ4_0, pair_products<Q4Pair>);
  set(WeightType::kQ4K, k45_packed_products<false>);
  set(WeightType::kQ5K, k45_packed_products<true>);
  set(WeightType::kQ6K, q6k_packed_products);
}

}  // namespace kvarto::avx512vnni
