// Decoding with x86 vectors: the same numbers, bit for bit, as the definitions.

#pragma once

namespace kvarto::KVARTO_ISA {

KVARTO_INLINE __m128i load_bytes(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
KVARTO_INLINE __m128i low_nibbles(__m128i pairs) { return _mm_and_si128(pairs, _mm_set1_epi8(15)); }
KVARTO_INLINE __m128i high_nibbles(__m128i pairs) {
  return _mm_and_si128(_mm_srli_epi16(pairs, 4), _mm_set1_epi8(15));
}

// Stores numbers(codes) of 16 codes, kLanes at a time.
template <typename Numbers>
KVARTO_INLINE void decode_16(__m128i codes, float* to, const Numbers& numbers) {
  KVARTO_UNROLL(16 / kLanes, i) { store(to + i * kLanes, numbers(part_of<i>(codes))); };
}

// `numbers` of whole 16s of bytes, `rest` of each byte behind them.
template <typename Numbers, typename Rest>
KVARTO_INLINE void decode_bytes(const std::byte* from, float* to, std::size_t count,
                                const Numbers& numbers, const Rest& rest) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) decode_16(load_bytes(from + i), to + i, numbers);
  for (; i < count; ++i) to[i] = rest(static_cast<std::uint8_t>(from[i]));
}

static void decode_e4m3_fast(const std::byte* from, float* to, std::size_t count) {
  decode_bytes(from, to, count, from_e4m3, f32_from_e4m3);
}
static void decode_e5m2_fast(const std::byte* from, float* to, std::size_t count) {
  decode_bytes(from, to, count, from_e5m2, f32_from_e5m2);
}

KVARTO_INLINE void decode_signed(const std::byte* from, float* to, std::size_t count, float scale) {
  const Vec factor = set1(scale);
  decode_bytes(
      from, to, count,
      [&](__m128i bytes)
          __attribute__((always_inline)) { return mul(from_signed_bytes(bytes), factor); },
      [&](std::uint8_t byte) {
        return static_cast<float>(std::int32_t{static_cast<std::int8_t>(byte)}) * scale;
      });
}
static void decode_int8_fast(const std::byte* from, float* to, std::size_t count) {
  decode_signed(from, to, count, load_f32(from + count));
}
static void decode_q8_0_fast(const std::byte* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kBlock, from += Q8Block::kBytes) {
    decode_signed(from + 2, to + i, kBlock, load_f16(from));
  }
}

template <int kBits, bool kHasMinimum>
static void decode_nibble_blocks_fast(const std::byte* from, float* to, std::size_t count) {
  using Block = NibbleBlock<kBits, kHasMinimum>;
  for (std::size_t i = 0; i < count; i += kBlock, from += Block::kBytes) {
    const __m128i pairs = load_bytes(from + Block::kScaleBytes + Block::kHighBytes);
    __m128i low = low_nibbles(pairs);
    __m128i high = high_nibbles(pairs);
    if constexpr (kBits == 5) {
      std::uint32_t bits = 0;
      __builtin_memcpy(&bits, from + Block::kScaleBytes, sizeof bits);
      low = _mm_or_si128(low, fifth_bits(bits));
      high = _mm_or_si128(high, fifth_bits(bits >> 16));
    }
    const Vec scale = set1(load_f16(from));
    const Vec minimum = set1(kHasMinimum ? load_f16(from + 2) : 0);
    const auto numbers = [&](__m128i codes) __attribute__((always_inline)) {
      if constexpr (kHasMinimum) {
        return add(mul(from_bytes(codes, 0), scale), minimum);
      } else {
        return mul(from_bytes(codes, Block::kOffset), scale);
      }
    };
    decode_16(low, to + i, numbers);
    decode_16(high, to + i + 16, numbers);
  }
}

static void decode_iq4_nl_fast(const std::byte* from, float* to, std::size_t count) {
  const __m128i values =
      _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  for (std::size_t i = 0; i < count; i += kBlock, from += Iq4NlBlock::kBytes) {
    const __m128i pairs = load_bytes(from + 2);
    const Vec scale = set1(load_f16(from));
    const auto numbers = [&](__m128i bytes) __attribute__((always_inline)) {
      return mul(from_signed_bytes(bytes), scale);
    };
    decode_16(_mm_shuffle_epi8(values, low_nibbles(pairs)), to + i, numbers);
    decode_16(_mm_shuffle_epi8(values, high_nibbles(pairs)), to + i + 16, numbers);
  }
}

// 32 codes that lie in pairs.
template <typename Numbers>
KVARTO_INLINE void decode_pairs_32(__m128i pairs, float* to, const Numbers& numbers) {
  const __m128i low = low_nibbles(pairs);
  const __m128i high = high_nibbles(pairs);
  decode_16(_mm_unpacklo_epi8(low, high), to, numbers);
  decode_16(_mm_unpackhi_epi8(low, high), to + 16, numbers);
}

static void decode_int4_fast(const std::byte* from, float* to, std::size_t count) {
  if (count % 32 != 0) return decode_int4(from, to, count);
  const std::byte* scales = from + count / 2;
  for (std::size_t i = 0; i < count; i += 32) {
    const Vec scale = set1(load_f32(scales + i / kInt4Group * sizeof(float)));
    decode_pairs_32(
        load_bytes(from + i / 2), to + i, [&](__m128i codes) __attribute__((always_inline)) {
          return mul(from_bytes(codes, 8), scale);
        });
  }
}

template <typename Scale>
static void decode_fp4_fast(const std::byte* from, float* to, std::size_t count) {
  const std::byte* scales = from + count / 2;
  for (std::size_t i = 0; i < count; i += Scale::kGroup) {
    const Vec scale = set1(Scale::value(static_cast<std::uint8_t>(scales[i / Scale::kGroup])));
    const auto numbers = [&](__m128i codes) __attribute__((always_inline)) {
      return mul(from_e2m1(codes), scale);
    };
    if constexpr (Scale::kGroup == 32) {
      decode_pairs_32(load_bytes(from + i / 2), to + i, numbers);
    } else {
      const __m128i pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i / 2));
      decode_16(_mm_unpacklo_epi8(low_nibbles(pairs), high_nibbles(pairs)), to + i, numbers);
    }
  }
}

template <std::size_t kGroup, bool kIsScaleF32>
static void decode_fp8_scaled_fast(const std::byte* from, float* to, std::size_t count) {
  const std::byte* scales = from + count;
  for (std::size_t first = 0; first < count; first += kGroup) {
    const std::size_t group = first / kGroup;
    const float scale = kIsScaleF32 ? load_f32(scales + group * sizeof(float))
                                    : f32_from_ue8m0(static_cast<std::uint8_t>(scales[group]));
    const Vec factor = set1(scale);
    decode_bytes(
        from + first, to + first, least(kGroup, count - first),
        [&](__m128i bytes) __attribute__((always_inline)) { return mul(from_e4m3(bytes), factor); },
        [&](std::uint8_t byte) { return f32_from_e4m3(byte) * scale; });
  }
}

static void fill_fast_decoders(KernelTable& table) {
  const auto set = [&](Codec codec, DecodeFunction decode) {
    table.decode[static_cast<int>(codec)] = decode;
  };
  set(Codec::kFp8E4M3, decode_e4m3_fast);
  set(Codec::kFp8E5M2, decode_e5m2_fast);
  set(Codec::kQ8_0, decode_q8_0_fast);
  set(Codec::kQ5_1, decode_nibble_blocks_fast<5, true>);
  set(Codec::kQ5_0, decode_nibble_blocks_fast<5, false>);
  set(Codec::kQ4_1, decode_nibble_blocks_fast<4, true>);
  set(Codec::kQ4_0, decode_nibble_blocks_fast<4, false>);
  set(Codec::kIq4Nl, decode_iq4_nl_fast);
  set(Codec::kInt8, decode_int8_fast);
  set(Codec::kInt4, decode_int4_fast);
  set(Codec::kNvfp4, decode_fp4_fast<Nvfp4Scale>);
  set(Codec::kMxfp4, decode_fp4_fast<Mxfp4Scale>);
  set(Codec::kFp8Scaled128, decode_fp8_scaled_fast<128, true>);
  set(Codec::kFp8Scaled64, decode_fp8_scaled_fast<64, false>);
  set(Codec::kFp8Scaled32, decode_fp8_scaled_fast<32, false>);
}

}  // namespace kvarto::KVARTO_ISA
