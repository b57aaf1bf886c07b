// Attention over integer codes with 16-bit multiplications (AVX2): vpmaddwd multiplies two codes by
// two operands and adds them in each of 8 lanes. Bytes are split into even and odd ones, so that
// all four of a 32-bit word reach its lane without a shuffle.
//
// Operands lie as pairs of 16-bit integers (CodeKernels::has_paired_operands), for queries of one
// byte and of two alike.

#pragma once

#include "kernels/code_kernels.h"
#include "kernels/vec_avx2.h"

namespace kvarto::avx2 {

inline constexpr int kHalves = 2;       // vectors of a line: 8 rows or elements each
inline constexpr int kPairQueries = 4;  // at once: 8 of 16 registers are sums

KVARTO_INLINE void prefetch_line(const std::byte* p) { __builtin_prefetch(p, 0, 2); }

// The four codes of each word, or of 4-bit codes the four in the low (kWord 0) or high bits.
struct Split {
  __m256i even[kHalves];  // codes 0 and 2
  __m256i odd[kHalves];   // codes 1 and 3
};
template <int kBits, int kWord>
KVARTO_INLINE Split split_line(const __m256i* line) {
  const __m256i mask = _mm256_set1_epi16(kBits == 8 ? 255 : 15);
  Split split;
  KVARTO_UNROLL(kHalves, h) {
    if constexpr (kBits == 8) {
      split.even[h] = _mm256_and_si256(line[h], mask);
      split.odd[h] = _mm256_srli_epi16(line[h], 8);
    } else if constexpr (kWord == 0) {
      split.even[h] = _mm256_and_si256(line[h], mask);
      split.odd[h] = _mm256_and_si256(_mm256_srli_epi16(line[h], 8), mask);
    } else {
      split.even[h] = _mm256_and_si256(_mm256_srli_epi16(line[h], 4), mask);
      split.odd[h] = _mm256_srli_epi16(line[h], 12);
    }
  };
  return split;
}

// Adds one word of operands of each query; a query's words are kStep apart. Sums are exact in 32
// bits: parts may wrap, as in codes_inl.h.
template <int kQueries, int kStep>
KVARTO_INLINE void add_pairs(__m256i* acc, const Split& codes, const std::int32_t* even,
                             const std::int32_t* odd) {
  KVARTO_UNROLL(kQueries, g) {
    const __m256i e = _mm256_set1_epi32(even[g * kStep]);
    const __m256i o = _mm256_set1_epi32(odd[g * kStep]);
    KVARTO_UNROLL(kHalves, h) {
      __m256i& sum = acc[g * kHalves + h];
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(codes.even[h], e));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(codes.odd[h], o));
    };
  };
}

KVARTO_INLINE void load_line(const std::byte* p, __m256i* line) {
  KVARTO_UNROLL(kHalves, h) {
    line[h] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + h * 32));
  };
}

template <int kQueries>
KVARTO_INLINE void begin_pair_sums(__m256i* acc, const std::int32_t* zeros) {
  KVARTO_UNROLL(kQueries, g) {
    KVARTO_UNROLL(kHalves, h) { acc[g * kHalves + h] = _mm256_set1_epi32(zeros[g]); };
  };
}

// ---------------------------------------------------------------- scores

// One tile of rows by the queries [query, query + kQueries) of a tile of kStride.
template <int kBits, int kStride, int kQueries, bool kPrefetches>
KVARTO_INLINE void score_pairs_of(const CodeScoreArgs& args, std::uint32_t tile,
                                  std::uint32_t query) {
  constexpr int kWords = 8 / kBits;  // elements / 4 of one line
  const std::byte* k = args.k + args.offsets[tile];
  const std::byte* next = kPrefetches ? args.next_k + args.next_offsets[tile] : nullptr;
  const std::size_t num_words = args.dim / 4;
  const std::size_t num_groups = (args.dim + args.group_elements - 1) / args.group_elements;
  const std::int32_t* even = args.q + query;
  const std::int32_t* odd = even + num_words * kStride;
  const std::int32_t* zeros = odd + num_words * kStride;
  float* scores = args.scores + query * kChunkRows + tile * kKeyTileRows;
  const std::size_t group_words = args.group_elements / 4;
  std::size_t word = 0;
  for (std::size_t group = 0; group < num_groups; ++group) {
    const std::size_t end = num_words - word < group_words ? num_words : word + group_words;
    __m256i acc[kQueries * kHalves];
    begin_pair_sums<kQueries>(acc, zeros + group * kStride);
    for (; word < end; word += kWords) {
      __m256i line[kHalves];
      load_line(k, line);
      k += 64;
      if constexpr (kPrefetches) {
        prefetch_line(next);
        next += 64;
      }
      KVARTO_UNROLL(kWords, w) {
        const std::size_t at = (word + w) * kStride;
        add_pairs<kQueries, 1>(acc, split_line<kBits, w>(line), even + at, odd + at);
      };
    }
    const float* row_scales = args.row_scales + group * kChunkRows + tile * kKeyTileRows;
    KVARTO_UNROLL(kQueries * kHalves, i) {
      float* out = scores + i / kHalves * kChunkRows + i % kHalves * 8;
      const Vec x = mul(_mm256_cvtepi32_ps(acc[i]), load(row_scales + i % kHalves * 8));
      store(out, group == 0 ? x : add(x, load(out)));
    };
  }
  const std::int32_t* scales = zeros + num_groups * kStride;
  KVARTO_UNROLL(kQueries * kHalves, i) {
    float* out = scores + i / kHalves * kChunkRows + i % kHalves * 8;
    const Vec scale = _mm256_castsi256_ps(_mm256_set1_epi32(scales[i / kHalves]));
    store(out, mul(load(out), scale));
  };
}

template <int kBits, int kStride>
void score_pairs(const CodeScoreArgs& args) {
  constexpr int kQueries = smaller(kStride, kPairQueries);
  for (std::uint32_t tile = 0; tile < args.count; ++tile) {
    KVARTO_UNROLL(kStride / kQueries, i) {
      constexpr auto kQuery = static_cast<std::uint32_t>(i * kQueries);
      if (kQuery == 0 && args.next_k != nullptr) {
        score_pairs_of<kBits, kStride, kQueries, true>(args, tile, kQuery);
      } else {
        score_pairs_of<kBits, kStride, kQueries, false>(args, tile, kQuery);
      }
    };
  }
}

// ---------------------------------------------------------------- values

// 16 elements, all rows of the chunk.
template <int kBits, int kQueries, bool kPrefetches>
KVARTO_INLINE void accumulate_pairs_of(const CodeAccumulateArgs& args, std::uint32_t element,
                                       std::uint32_t query) {
  constexpr int kLines = kBits / 2;        // of one tile and column
  constexpr int kQuads = 8 / kBits;        // quads of rows in one line
  constexpr int kParity = kChunkRows / 4;  // words of even, then of odd operands
  constexpr int kQueryWords = 2 * kParity;
  const std::size_t pair = std::size_t{element / args.group_elements} * args.num_queries + query;
  const auto* operands = reinterpret_cast<const std::int32_t*>(args.codes) + pair * kQueryWords;
  const std::size_t column = std::size_t{element / 16} * kLines * 64;
  __m256i acc[kQueries * kHalves];
  begin_pair_sums<kQueries>(acc, args.zeros + pair);
  for (std::uint32_t tile = 0; tile < args.count; ++tile) {
    const std::byte* v = args.v + args.offsets[tile] + column;
    KVARTO_UNROLL(kLines, j) {
      __m256i line[kHalves];
      load_line(v + j * 64, line);
      if constexpr (kPrefetches) {
        prefetch_line(args.next_v + args.next_offsets[tile] + column + j * 64);
      }
      KVARTO_UNROLL(kQuads, w) {
        const std::int32_t* at = operands + (j * kQuads + w) * 4 + tile;
        add_pairs<kQueries, kQueryWords>(acc, split_line<kBits, w>(line), at, at + kParity);
      };
    };
  }
  KVARTO_UNROLL(kQueries * kHalves, i) {
    constexpr int g = i / kHalves;
    float* out = args.acc + std::size_t{args.acc_stride} * (query + g) + element + i % kHalves * 8;
    store(out, fma(_mm256_cvtepi32_ps(acc[i]), set1(args.scales[pair + g]),
                   mul(load(out), set1(args.correction[query + g]))));
  };
}

template <int kBits, int kStride>
void accumulate_pairs(const CodeAccumulateArgs& args) {
  constexpr int kQueries = smaller(kStride, kPairQueries);
  for (std::uint32_t d = 0; d < args.dim; d += 16) {
    const std::uint32_t element = args.first_element + d;
    KVARTO_UNROLL(kStride / kQueries, i) {
      constexpr auto kQuery = static_cast<std::uint32_t>(i * kQueries);
      if (kQuery == 0 && args.next_v != nullptr) {
        accumulate_pairs_of<kBits, kQueries, true>(args, element, kQuery);
      } else {
        accumulate_pairs_of<kBits, kQueries, false>(args, element, kQuery);
      }
    };
  }
}

// ---------------------------------------------------------------- operands

// The largest of 8 non-negative numbers' bits, which order as they do; NaN is the largest.
KVARTO_INLINE float largest_lane(__m256i x) {
  __m128i y = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  y = _mm_max_epi32(y, _mm_shuffle_epi32(y, 0x4e));
  y = _mm_max_epi32(y, _mm_shuffle_epi32(y, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(y));
}
KVARTO_INLINE std::int32_t sum_of_lanes(__m256i x) {
  __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4e));
  y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0xb1));
  return _mm_cvtsi128_si32(y);
}

inline constexpr int kChunkVecs = static_cast<int>(kChunkRows) / kLanes;

// The operands of 64 rows, 8 a vector, to pairs: words 4 j + t of even and then of odd rows of
// rows 16 t + 4 j ... + 3.
KVARTO_INLINE void store_pairs(const __m256i* x, std::int32_t* to) {
  const __m256i swap = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  __m256i t[4];
  KVARTO_UNROLL(4, n) {
    t[n] = _mm256_shuffle_epi8(_mm256_packs_epi32(x[2 * n], x[2 * n + 1]), swap);
  };
  const __m256i low0 = _mm256_unpacklo_epi32(t[0], t[1]);
  const __m256i low1 = _mm256_unpacklo_epi32(t[2], t[3]);
  const __m256i high0 = _mm256_unpackhi_epi32(t[0], t[1]);
  const __m256i high1 = _mm256_unpackhi_epi32(t[2], t[3]);
  auto* out = reinterpret_cast<__m256i*>(to);
  _mm256_storeu_si256(out, _mm256_unpacklo_epi64(low0, low1));
  _mm256_storeu_si256(out + 1, _mm256_unpacklo_epi64(high0, high1));
  _mm256_storeu_si256(out + 2, _mm256_unpackhi_epi64(low0, low1));
  _mm256_storeu_si256(out + 3, _mm256_unpackhi_epi64(high0, high1));
}

inline std::int32_t store_operand_pairs(const float* p, const float* factors, std::int8_t* codes) {
  __m256i x[kChunkVecs];
  __m256i sum = _mm256_setzero_si256();
  KVARTO_UNROLL(kChunkVecs, n) {
    x[n] = _mm256_cvtps_epi32(mul(load(p + n * kLanes), load(factors + n * kLanes)));
    sum = _mm256_add_epi32(sum, x[n]);
  };
  store_pairs(x, reinterpret_cast<std::int32_t*>(codes));
  return sum_of_lanes(sum);
}

inline void weigh_pairs(const WeighArgs& args) {
  weigh_rows(args, [](const float* p, const float* factors, std::int8_t* codes) {
    return store_operand_pairs(p, factors, codes);
  });
}

inline void pack_query_pairs(const PackQueryCodesArgs& args) {
  const std::size_t num_words = args.dim / 4;
  const std::size_t num_groups = (args.dim + args.group_elements - 1) / args.group_elements;
  std::int32_t* zeros = args.out + 2 * num_words * args.tile;
  std::int32_t* scales = zeros + num_groups * args.tile;
  for (std::int32_t* word = args.out; word != scales + args.tile; ++word) *word = 0;
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  for (std::uint32_t q = 0; q < args.num_queries; ++q) {
    const float* row = args.rows[q];
    __m256i largest = _mm256_setzero_si256();
    for (std::uint32_t d = 0; d < args.dim; d += kLanes) {
      const __m256i x = _mm256_castps_si256(mul(load(row + d), set1(args.scale)));
      largest = _mm256_max_epi32(largest, _mm256_and_si256(x, magnitude));
    }
    const OperandUnit unit = operand_unit(largest_lane(largest), args.parts);
    __builtin_memcpy(scales + q, &unit.value, sizeof unit.value);
    for (std::uint32_t d = 0; d < args.dim; d += kLanes) {
      const Vec scaled = mul(load(row + d), set1(args.scale));
      const __m256i x = _mm256_cvtps_epi32(mul(scaled, set1(unit.per_unit)));
      zeros[d / args.group_elements * args.tile + q] -= args.zero_point * sum_of_lanes(x);
      alignas(32) std::int32_t lanes[kLanes];
      _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), x);
      for (std::uint32_t i = 0; i < kLanes; i += 4) {
        std::int32_t* to = args.out + std::size_t{(d + i) / 4} * args.tile + q;
        to[0] = (lanes[i] & 0xffff) | (lanes[i + 2] << 16);
        to[num_words * args.tile] = (lanes[i + 1] & 0xffff) | (lanes[i + 3] << 16);
      }
    }
  }
}

// ---------------------------------------------------------------- table

// What the kernels above could do at most: a multiplication of pairs and an addition.
static float pair_loop(std::size_t rounds) {
  constexpr int kChains = 12;
  __m256i acc[kChains];
  KVARTO_UNROLL(kChains, i) { acc[i] = _mm256_set1_epi32(int{i}); };
  __m256i a = _mm256_set1_epi16(3);
  const __m256i b = _mm256_set1_epi16(-1);
  for (std::size_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+x"(a));  // equal products must be made one by one
    KVARTO_UNROLL(kChains, i) {
      __m256i product = _mm256_madd_epi16(a, b);
      asm volatile("" : "+x"(product));
      acc[i] = _mm256_add_epi32(acc[i], product);
    };
  }
  KVARTO_UNROLL(kChains - 1, i) { acc[0] = _mm256_max_epi32(acc[0], acc[i + 1]); };
  return static_cast<float>(sum_of_lanes(acc[0]));
}

template <int kBits>
inline void fill_pair_kernels(CodeKernels& kernels) {
  constexpr int b = kBits == 8 ? 0 : 1;
  for (int parts = 0; parts < kNumOperandParts; ++parts) {
    kernels.score[b][parts][0] = score_pairs<kBits, 1>;
    kernels.score[b][parts][1] = score_pairs<kBits, 2>;
    kernels.score[b][parts][2] = score_pairs<kBits, 4>;
    kernels.score[b][parts][3] = score_pairs<kBits, 8>;
  }
  kernels.accumulate[b][0] = accumulate_pairs<kBits, 1>;
  kernels.accumulate[b][1] = accumulate_pairs<kBits, 2>;
  kernels.accumulate[b][2] = accumulate_pairs<kBits, 4>;
  kernels.accumulate[b][3] = accumulate_pairs<kBits, 8>;
}

// Leaves fills and loads of scales as they are.
inline void fill_pair_table(CodeKernels& kernels) {
  kernels.is_fast = true;
  kernels.has_paired_operands = true;
  kernels.pack_queries = pack_query_pairs;
  kernels.weigh = weigh_pairs;
  kernels.dot_loop = pair_loop;
  kernels.dot_loop_operations = 2ull * 16 * 12;
  fill_pair_kernels<8>(kernels);
  fill_pair_kernels<4>(kernels);
}

}  // namespace kvarto::avx2
