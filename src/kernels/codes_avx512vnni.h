// Attention over integer codes with 8-bit dot products (AVX512-VNNI): vpdpbusd adds four products
// of unsigned codes and signed operand bytes to each of 16 lanes.

#pragma once

#include <immintrin.h>

#include "kernels/code_kernels.h"
#include "kernels/kernels.h"
#include "kernels/unroll_inl.h"

namespace kvarto::avx512vnni {

inline constexpr int kLine = 64;  // one vector, one cache line
inline constexpr int kTileRows = static_cast<int>(kKeyTileRows);
inline constexpr int kMaxTiles = static_cast<int>(kChunkRows) / kTileRows;
inline constexpr int kMaxGroups = static_cast<int>(kMaxHeadDim) / 32;
KVARTO_INLINE __m512i load_line(const std::byte* p) { return _mm512_loadu_si512(p); }
KVARTO_INLINE __m512i broadcast(const std::int32_t* p) { return _mm512_set1_epi32(*p); }
KVARTO_INLINE __m512i broadcast(const std::int8_t* p) {
  std::int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}
// The instruction itself: GCC 12 copies accumulators of the intrinsic from register to register.
KVARTO_INLINE __m512i add_dot(__m512i acc, __m512i codes, __m512i operand) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(operand));
  return acc;
}
// The same with an operand from memory: one instruction less where a broadcast serves few products.
// Half of the operands come so, as a core reads two vectors a cycle.
KVARTO_INLINE __m512i add_dot_from(__m512i acc, __m512i codes, const std::int32_t* operand) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(codes), "m"(*operand));
  return acc;
}
KVARTO_INLINE __m512i add_dot_from(__m512i acc, __m512i codes, const std::int8_t* operand) {
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(acc)
      : "v"(codes), "m"(*reinterpret_cast<const std::int8_t(*)[4]>(operand)));
  return acc;
}
// Between the products that `acc` gets: the compiler would gather prefetches where a loop begins.
KVARTO_INLINE void prefetch_beside(__m512i& acc, const std::byte* p) {
  asm("prefetcht1 %1" : "+v"(acc) : "m"(*p));
}
KVARTO_INLINE __m512i low_codes(__m512i line) {
  return _mm512_and_si512(line, _mm512_set1_epi8(15));
}
KVARTO_INLINE __m512i high_codes(__m512i line) {
  return _mm512_and_si512(_mm512_srli_epi16(line, 4), _mm512_set1_epi8(15));
}

// Adds the products of kVecs vectors of codes with one operand.
template <int kVecs, bool kFromRegister, typename Operand>
KVARTO_INLINE void multiply(__m512i* acc, const __m512i* codes, const Operand* operand) {
  if constexpr (kFromRegister && kVecs > 1) {
    const __m512i b = broadcast(operand);
    KVARTO_UNROLL(kVecs, i) { acc[i] = add_dot(acc[i], codes[i], b); };
  } else {
    KVARTO_UNROLL(kVecs, i) { acc[i] = add_dot_from(acc[i], codes[i], operand); };
  }
}

// Sums of low bytes begin with the zero points' share; those of high bytes follow them.
template <int kParts, int kQueries, int kVecs>
KVARTO_INLINE void begin_sums(__m512i* acc, const std::int32_t* zeros) {
  KVARTO_UNROLL(kQueries, g) {
    const __m512i zero = broadcast(zeros + g);
    KVARTO_UNROLL(kVecs, i) {
      acc[g * kVecs + i] = zero;
      if constexpr (kParts == 2) acc[(kQueries + g) * kVecs + i] = _mm512_setzero_si512();
    };
  };
}

// Lines of the four next tiles in turn. Four streams are read from memory faster than one; one line
// for every few products, as a burst would fill the buffers that loads need.
struct NextLines {
  const std::byte* tile[kMaxTiles] = {};
};
KVARTO_INLINE NextLines next_lines_at(const std::byte* next, const std::uint64_t* offsets,
                                      std::size_t first_byte) {
  NextLines lines;
  if (next == nullptr) return lines;
  KVARTO_UNROLL(kMaxTiles, t) { lines.tile[t] = next + offsets[t] + first_byte; };
  return lines;
}
KVARTO_INLINE const std::byte* take_line(NextLines& lines) {
  const std::byte* line = lines.tile[0];
  KVARTO_UNROLL(kMaxTiles - 1, t) { lines.tile[t] = lines.tile[t + 1]; };
  lines.tile[kMaxTiles - 1] = line + kLine;
  return line;
}

// ---------------------------------------------------------------- scores

// Adds the sums of one group of elements, times the scales of their rows, to `total`.
template <int kParts, int kQueries, int kTiles>
KVARTO_INLINE void add_group(const __m512i* acc, const float* row_scales, bool is_first,
                             __m512* total) {
  KVARTO_UNROLL(kTiles, t) {
    const __m512 row_scale = _mm512_loadu_ps(row_scales + t * kTileRows);
    KVARTO_UNROLL(kQueries, g) {
      __m512i sum = acc[g * kTiles + t];
      if constexpr (kParts == 2) {
        sum = _mm512_add_epi32(sum, _mm512_slli_epi32(acc[(kQueries + g) * kTiles + t], 8));
      }
      const __m512 x = _mm512_cvtepi32_ps(sum);
      __m512& to = total[g * kTiles + t];
      to = is_first ? _mm512_mul_ps(x, row_scale) : _mm512_fmadd_ps(x, row_scale, to);
    };
  };
}

// Tiles [tile, tile + kTiles) by queries [query, query + kQueries) of a query tile of kStride.
template <int kBits, int kParts, int kStride, int kQueries, int kTiles, bool kPrefetch>
KVARTO_INLINE void score_part(const CodeScoreArgs& args, std::uint32_t tile, std::uint32_t query,
                              NextLines& next) {
  constexpr int kNextLines = kPrefetch ? kTiles * kQueries / kStride : 0;
  constexpr int kWords = 8 / kBits;  // elements / 4 of one line
  const std::byte* k[kTiles];
  KVARTO_UNROLL(kTiles, t) { k[t] = args.k + args.offsets[tile + t]; };
  const std::size_t num_words = args.dim / 4;
  const std::size_t num_groups = (args.dim + args.group_elements - 1) / args.group_elements;
  const std::int32_t* low = args.q + query;
  const std::int32_t* high = low + num_words * kStride;
  const std::int32_t* zeros = low + kParts * num_words * kStride;
  const std::int32_t* scales = zeros + num_groups * kStride;
  const float* row_scales = args.row_scales + tile * kTileRows;
  float* scores = args.scores + query * kChunkRows + tile * kTileRows;
  const std::size_t group_words = args.group_elements / 4;
  std::size_t word = 0;
  __m512 total[kQueries * kTiles];
  for (std::size_t group = 0; group < num_groups; ++group) {
    const std::size_t end = num_words - word < group_words ? num_words : word + group_words;
    __m512i acc[kParts * kQueries * kTiles];
    begin_sums<kParts, kQueries, kTiles>(acc, zeros + group * kStride);
    for (; word < end; word += kWords) {
      __m512i line[kTiles];
      KVARTO_UNROLL(kTiles, t) {
        line[t] = load_line(k[t]);
        k[t] += kLine;
        if constexpr (t < kNextLines) prefetch_beside(acc[t], take_line(next));
      };
      KVARTO_UNROLL(kWords, w) {
        __m512i codes[kTiles];
        KVARTO_UNROLL(kTiles, t) {
          codes[t] = kBits == 8 ? line[t] : w == 0 ? low_codes(line[t]) : high_codes(line[t]);
        };
        KVARTO_UNROLL(kQueries, g) {
          const std::int32_t* b = low + (word + w) * kStride + g;
          multiply<kTiles, kParts == 2 || g % 2 == 0>(acc + g * kTiles, codes, b);
          if constexpr (kParts == 2) {
            const std::int32_t* h = high + (word + w) * kStride + g;
            multiply<kTiles, false>(acc + (kQueries + g) * kTiles, codes, h);
          }
        };
      };
    }
    add_group<kParts, kQueries, kTiles>(acc, row_scales + group * kChunkRows, group == 0, total);
  }
  KVARTO_UNROLL(kQueries, g) {
    const __m512 scale = _mm512_castsi512_ps(broadcast(scales + g));
    KVARTO_UNROLL(kTiles, t) {
      _mm512_storeu_ps(scores + g * kChunkRows + t * kTileRows,
                       _mm512_mul_ps(total[g * kTiles + t], scale));
    };
  };
}

template <int kBits, int kParts, int kStride, int kQueries, int kTiles>
KVARTO_INLINE void score_queries(const CodeScoreArgs& args, std::uint32_t tile, NextLines& next) {
  KVARTO_UNROLL(kStride / kQueries, i) {
    constexpr auto kQuery = static_cast<std::uint32_t>(i * kQueries);
    if (args.next_k != nullptr) {
      score_part<kBits, kParts, kStride, kQueries, kTiles, true>(args, tile, kQuery, next);
    } else {
      score_part<kBits, kParts, kStride, kQueries, kTiles, false>(args, tile, kQuery, next);
    }
  };
}

// Two vectors of keys and half of the registers for sums: what a core can read from its first
// level, 2 vectors a cycle, then feeds both dot product units.
template <int kBits, int kParts, int kStride>
void score(const CodeScoreArgs& args) {
  constexpr int kQueries = smaller(kStride, kParts == 2 ? 4 : 8);
  constexpr int kTiles = smaller(kMaxTiles, 16 / (kParts * kQueries));
  NextLines next = next_lines_at(args.next_k, args.next_offsets, 0);
  std::uint32_t tile = 0;
  for (; tile + kTiles <= args.count; tile += kTiles) {
    score_queries<kBits, kParts, kStride, kQueries, kTiles>(args, tile, next);
  }
  if constexpr (kTiles > 1) {
    for (; tile < args.count; ++tile) {
      score_queries<kBits, kParts, kStride, kQueries, 1>(args, tile, next);
    }
  }
}

// ---------------------------------------------------------------- values

// Adds the sums of a chunk to the accumulators.
template <int kQueries, int kColumns>
KVARTO_INLINE void add_columns(const __m512i* acc, const CodeAccumulateArgs& args,
                               std::uint32_t column, std::uint32_t query) {
  const std::uint32_t element = column * 16;
  const std::uint32_t group = element / args.group_elements;
  const float* scales = args.scales + std::size_t{group} * args.num_queries + query;
  float* out = args.acc + std::size_t{query} * args.acc_stride + element;
  KVARTO_UNROLL(kQueries, g) {
    const __m512 scale = _mm512_set1_ps(scales[g]);
    const __m512 correction = _mm512_set1_ps(args.correction[query + g]);
    KVARTO_UNROLL(kColumns, c) {
      const __m512i sum = _mm512_add_epi32(
          acc[g * kColumns + c], _mm512_slli_epi32(acc[(kQueries + g) * kColumns + c], 8));
      float* to = out + std::size_t{args.acc_stride} * g + c * 16;
      _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale,
                                           _mm512_mul_ps(_mm512_loadu_ps(to), correction)));
    };
  };
}

// Columns of 16 elements [column, column + kColumns) of one group, all rows of the chunk.
template <int kBits, int kQueries, int kColumns, int kNextLines>
KVARTO_INLINE void accumulate_part(const CodeAccumulateArgs& args, std::uint32_t column,
                                   std::uint32_t query, NextLines& next) {
  constexpr int kLines = kTileRows * kBits / 32;             // of one tile and column
  constexpr int kQuads = 8 / kBits;                          // quads of rows in one line
  constexpr bool kIsShared = kBits == 8 && kNextLines == 1;  // with weigh()
  const std::uint32_t element = column * 16;
  const std::uint32_t group = element / args.group_elements;
  constexpr int kQueryBytes = 2 * static_cast<int>(kChunkRows);
  const std::size_t pair = std::size_t{group} * args.num_queries + query;
  const std::int8_t* codes = args.codes + pair * kQueryBytes;
  __m512i acc[2 * kQueries * kColumns];
  begin_sums<2, kQueries, kColumns>(acc, args.zeros + pair);
  for (std::uint32_t tile = 0; tile < args.count; ++tile) {
    const std::byte* v = args.v + args.offsets[tile] + column * (kLines * kLine);
    const std::int8_t* p = codes + tile * 4;
    KVARTO_UNROLL(kLines, j) {
      __m512i line[kColumns];
      KVARTO_UNROLL(kColumns, c) {
        line[c] = load_line(v + (c * kLines + j) * kLine);
        if constexpr (c < kNextLines && (j < 3 || !kIsShared)) {
          prefetch_beside(acc[c], take_line(next));
        }
      };
      KVARTO_UNROLL(kQuads, w) {
        __m512i x[kColumns];
        KVARTO_UNROLL(kColumns, c) {
          x[c] = kBits == 8 ? line[c] : w == 0 ? low_codes(line[c]) : high_codes(line[c]);
        };
        KVARTO_UNROLL(kQueries, g) {
          const std::int8_t* word = p + g * kQueryBytes + (j * kQuads + w) * 16;
          multiply<kColumns, true>(acc + g * kColumns, x, word);
          multiply<kColumns, false>(acc + (kQueries + g) * kColumns, x, word + kChunkRows);
        };
      };
    };
  }
  add_columns<kQueries, kColumns>(acc, args, column, query);
}

template <int kBits, int kQueries, int kNextLines>
KVARTO_INLINE void accumulate_columns(const CodeAccumulateArgs& args, std::uint32_t query,
                                      NextLines& next) {
  constexpr int kColumns = 2;  // a group has 32 elements or more
  const std::uint32_t end = (args.first_element + args.dim) / 16;
  std::uint32_t column = args.first_element / 16;
  for (; column + kColumns <= end; column += kColumns) {
    accumulate_part<kBits, kQueries, kColumns, kNextLines>(args, column, query, next);
  }
  if (column < end) accumulate_part<kBits, kQueries, 1, 0>(args, column, query, next);
}

template <int kBits, int kStride>
void accumulate(const CodeAccumulateArgs& args) {
  constexpr int kQueries = smaller(kStride, 4);
  constexpr int kPasses = kStride / kQueries;
  NextLines next = next_lines_at(args.next_v, args.next_offsets,
                                 std::size_t{args.first_element} * (kTileRows * kBits / 8));
  KVARTO_UNROLL(kPasses, i) {
    constexpr auto kQuery = static_cast<std::uint32_t>(i * kQueries);
    if (args.next_v != nullptr) {
      accumulate_columns<kBits, kQueries, 2 / kPasses>(args, kQuery, next);
    } else {
      accumulate_columns<kBits, kQueries, 0>(args, kQuery, next);
    }
  };
}

// ---------------------------------------------------------------- operands

// Lane i = op over the lanes of a[i], for 8 vectors; the other lanes repeat them.
template <typename Op>
KVARTO_INLINE __m512i reduce_eight(const __m512i* a, const Op& op) {
  __m512i t[4];
  __m512i u[2];
  KVARTO_UNROLL(4, i) {
    t[i] = op(_mm512_unpacklo_epi32(a[i], a[i + 4]), _mm512_unpackhi_epi32(a[i], a[i + 4]));
  };
  KVARTO_UNROLL(2, i) {
    u[i] = op(_mm512_unpacklo_epi32(t[i], t[i + 2]), _mm512_unpackhi_epi32(t[i], t[i + 2]));
  };
  const __m512i v =
      op(_mm512_shuffle_i32x4(u[0], u[1], 0x44), _mm512_shuffle_i32x4(u[0], u[1], 0xee));
  const __m512i w = op(v, _mm512_shuffle_i32x4(v, v, 0xb1));
  // Queries 0, 2, 4, 6 in the first quarter, 1, 3, 5, 7 in the third.
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 8, 1, 9, 2, 10, 3, 11), w);
}
KVARTO_INLINE __m512i add_lanes(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
KVARTO_INLINE __m512i larger_lanes(__m512i a, __m512i b) {
  return _mm512_castps_si512(max(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
}

// Four vectors of operands to their low and high bytes: packing puts the four rows of a word side
// by side, words in the order that WeighArgs gives. Returns sums of operands whose lanes add up to
// that of all.
KVARTO_INLINE __m512i store_operands(const __m512i* x, std::int8_t* to) {
  const __m512i a = _mm512_packs_epi32(x[0], x[1]);
  const __m512i b = _mm512_packs_epi32(x[2], x[3]);
  const __m512i mask = _mm512_set1_epi16(255);
  const __m512i half = _mm512_set1_epi16(128);  // the low byte has a sign
  const __m512i low = _mm512_packus_epi16(_mm512_and_si512(a, mask), _mm512_and_si512(b, mask));
  const __m512i high = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(a, half), 8),
                                          _mm512_srai_epi16(_mm512_add_epi16(b, half), 8));
  _mm512_storeu_si512(to, low);
  _mm512_storeu_si512(to + kLine, high);
  const __m512i ones = _mm512_set1_epi8(1);
  const __m512i high_sums = add_dot(_mm512_setzero_si512(), ones, high);
  return add_dot(_mm512_slli_epi32(high_sums, 8), ones, low);
}

// Scales of the chunk's rows that count, in units of the largest / kOperandMax16.
struct RowFactors {
  alignas(64) float of[kMaxGroups][kChunkRows];
  float units[kMaxGroups];  // value of one unit
};

KVARTO_INLINE void find_factors(const WeighArgs& args, RowFactors& factors) {
  const std::uint32_t end = args.softmax->end_row;
  const std::uint64_t all = ((end == 64 ? 0 : std::uint64_t{1} << end) - 1) &
                            ~((std::uint64_t{1} << args.softmax->first_row) - 1);
  constexpr auto kTop = static_cast<float>(kOperandMax16);
  for (std::uint32_t group = 0; group < args.num_groups; ++group) {
    const float* scales = args.row_scales + group * kChunkRows;
    __m512 x[kMaxTiles];
    // The bits of magnitudes order as they do; NaN is the largest and so reaches the unit.
    __m512i largest = _mm512_setzero_si512();
    KVARTO_UNROLL(kMaxTiles, n) {
      x[n] = _mm512_maskz_loadu_ps(static_cast<__mmask16>(all >> (n * 16)), scales + n * 16);
      largest = _mm512_max_epi32(largest, _mm512_castps_si512(_mm512_abs_ps(x[n])));
    };
    const float top =
        _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(largest))));
    factors.units[group] = top * (1 / kTop);
    // Below the normal numbers the quotient overflows: nothing of weight is lost there.
    const __m512 per_unit = _mm512_set1_ps(top < 0x1p-100f ? 0 : kTop / top);
    KVARTO_UNROLL(kMaxTiles, n) {
      _mm512_store_ps(factors.of[group] + n * 16, _mm512_mul_ps(x[n], per_unit));
    };
  }
}

// The largest scores of up to 8 queries, after masks and biases, in the lanes of one vector.
KVARTO_INLINE __m512 largest_scores(const SoftmaxArgs& args, std::uint32_t first_query,
                                    std::uint32_t num_queries, bool is_plain) {
  const std::uint32_t begin = args.first_row / kTileRows * kTileRows;
  const std::uint32_t end = (args.end_row + kTileRows - 1) / kTileRows * kTileRows;
  __m512i largest[8];
  KVARTO_UNROLL(8, i) { largest[i] = _mm512_castps_si512(_mm512_set1_ps(kMinusInfinity)); };
  for (std::uint32_t i = 0; i < num_queries; ++i) {
    float* scores = args.scores + std::size_t{first_query + i} * kChunkRows;
    if (!is_plain) {
      shape_scores(args, first_query + i, scores, begin, end);
      for (std::uint32_t row = 0; row < kChunkRows; row += kTileRows) {
        if (row < begin || row >= end) {
          _mm512_storeu_ps(scores + row, _mm512_set1_ps(kMinusInfinity));
        }
      }
    }
    __m512 x[kMaxTiles];
    KVARTO_UNROLL(kMaxTiles, n) { x[n] = _mm512_loadu_ps(scores + n * kTileRows); };
    largest[i] = _mm512_castps_si512(max(max(x[0], x[1]), max(x[2], x[3])));
  }
  return _mm512_castsi512_ps(reduce_eight(largest, larger_lanes));
}

KVARTO_INLINE void weigh_eight(const WeighArgs& args, const RowFactors& factors,
                               std::uint32_t first_query, bool is_plain) {
  const SoftmaxArgs& softmax = *args.softmax;
  const std::uint32_t rest = softmax.num_queries - first_query;
  const std::uint32_t num_queries = rest < 8 ? rest : 8;
  const auto used = static_cast<__mmask16>((1u << num_queries) - 1);
  const __m512 largest = largest_scores(softmax, first_query, num_queries, is_plain);
  const __m512 before = _mm512_maskz_loadu_ps(used, softmax.maximum + first_query);
  const __m512 after = max(largest, before);
  // With nothing visible so far every score is -infinity, and so must stay every difference.
  const __m512 lowest = _mm512_set1_ps(-1e30f);
  const __m512 reference = max(after, lowest);
  const __m512 correction = exp2(sub(before, reference));
  const __m512 share = exp2(sub(largest, reference));
  _mm512_mask_storeu_ps(softmax.maximum + first_query, used, after);
  _mm512_mask_storeu_ps(softmax.correction + first_query, used, correction);
  alignas(64) float shares[16];
  alignas(64) float maxima[16];
  _mm512_store_ps(shares, share);
  _mm512_store_ps(maxima, max(largest, lowest));
  __m512i sums[kMaxGroups][8];
  const std::uint32_t next_lines = first_query == 0 ? args.next_lines * kMaxTiles / num_queries : 0;
  NextLines next = next_lines_at(args.next_v, args.next_offsets, args.next_first_byte);
  for (std::uint32_t i = 0; i < num_queries; ++i) {
    const std::uint32_t query = first_query + i;
    const float* scores = softmax.scores + std::size_t{query} * kChunkRows;
    const __m512 m = _mm512_set1_ps(maxima[i]);
    __m512 p[kMaxTiles];
    KVARTO_UNROLL(kMaxTiles, n) { p[n] = exp2(sub(_mm512_loadu_ps(scores + n * kTileRows), m)); };
    if (next_lines != 0) {
      for (std::uint32_t line = 0; line < next_lines; ++line) prefetch(take_line(next));
    }
    float* sum = softmax.sum + std::size_t{query} * kPadFloats;
    const __m512 total = add(add(p[0], p[1]), add(p[2], p[3]));
    _mm512_storeu_ps(sum,
                     fma(total, _mm512_set1_ps(shares[i]),
                         mul(_mm512_loadu_ps(sum), _mm512_set1_ps(softmax.correction[query]))));
    for (std::uint32_t group = 0; group < args.num_groups; ++group) {
      __m512i x[kMaxTiles];
      KVARTO_UNROLL(kMaxTiles, n) {
        x[n] = _mm512_cvtps_epi32(mul(p[n], _mm512_load_ps(factors.of[group] + n * kTileRows)));
      };
      const std::size_t pair = std::size_t{group} * softmax.num_queries + query;
      sums[group][i] = store_operands(x, args.codes + pair * 2 * kChunkRows);
    }
  }
  const __m512i minus_zero_point = _mm512_set1_epi32(-args.zero_point);
  for (std::uint32_t group = 0; group < args.num_groups; ++group) {
    const std::size_t pair = std::size_t{group} * softmax.num_queries + first_query;
    const __m512i sum = reduce_eight(sums[group], add_lanes);
    _mm512_mask_storeu_epi32(args.zeros + pair, used, _mm512_mullo_epi32(sum, minus_zero_point));
    _mm512_mask_storeu_ps(args.scales + pair, used,
                          mul(share, _mm512_set1_ps(factors.units[group])));
  }
}

inline void weigh(const WeighArgs& args) {
  const SoftmaxArgs& softmax = *args.softmax;
  const bool is_plain = softmax.first_row == 0 && softmax.end_row == kChunkRows &&
                        softmax.soft_cap <= 0 && softmax.slopes == nullptr &&
                        softmax.query_end == nullptr;
  RowFactors factors;
  find_factors(args, factors);
  for (std::uint32_t first = 0; first < softmax.num_queries; first += 8) {
    weigh_eight(args, factors, first, is_plain);
  }
}

inline void load_scales(const LoadScalesArgs& args) {
  const std::size_t tile_bytes = std::size_t{args.num_groups} * kTileRows * (args.is_f16 ? 2 : 4);
  for (std::uint32_t tile = 0; tile < args.count; ++tile) {
    const std::byte* from = args.from + args.offsets[tile];
    for (std::uint32_t group = 0; group < args.num_groups; ++group) {
      __m512 x;
      if (args.is_f16) {
        const auto* p = reinterpret_cast<const __m256i*>(from + group * kTileRows * 2);
        x = _mm512_cvtph_ps(_mm256_loadu_si256(p));
      } else {
        x = _mm512_loadu_ps(reinterpret_cast<const float*>(from + group * kTileRows * 4));
      }
      _mm512_storeu_ps(args.out + group * kChunkRows + tile * kTileRows, x);
    }
    if (args.next == nullptr) continue;
    for (std::size_t offset = 0; offset < tile_bytes; offset += kLine) {
      prefetch(args.next + args.next_offsets[tile] + offset);
    }
  }
}

// The largest |scale x| of a row; NaN if one is.
KVARTO_INLINE float largest_of(const float* row, std::uint32_t dim, __m512 scale) {
  __m512i largest = _mm512_setzero_si512();
  for (std::uint32_t d = 0; d < dim; d += 16) {
    const __m512i x = _mm512_castps_si512(_mm512_mul_ps(_mm512_loadu_ps(row + d), scale));
    largest = _mm512_max_epi32(largest, _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff)));
  }
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(largest))));
}

inline void pack_queries(const PackQueryCodesArgs& args) {
  const std::size_t num_words = args.dim / 4;
  const std::size_t num_groups = (args.dim + args.group_elements - 1) / args.group_elements;
  std::int32_t* zeros = args.out + args.parts * num_words * args.tile;
  std::int32_t* scales = zeros + num_groups * args.tile;
  const float top = static_cast<float>(args.parts == 2 ? kOperandMax16 : kOperandMax8);
  for (std::size_t i = 0; i < std::size_t{num_groups} * args.tile; ++i) zeros[i] = 0;
  for (std::uint32_t q = 0; q < args.tile; ++q) {
    std::int32_t* out = args.out + q;
    if (q >= args.num_queries) {
      for (std::size_t i = 0; i < args.parts * num_words; ++i) out[i * args.tile] = 0;
      scales[q] = 0;
      continue;
    }
    const float* row = args.rows[q];
    const __m512 scale = _mm512_set1_ps(args.scale);
    const float largest = largest_of(row, args.dim, scale);
    const float value = largest / top;
    __builtin_memcpy(scales + q, &value, sizeof value);
    const __m512 unit = _mm512_set1_ps(largest < 0x1p-100f ? 0 : top / largest);
    for (std::uint32_t d = 0; d < args.dim; d += 16) {
      const __m512i x =
          _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(row + d), scale), unit));
      zeros[d / args.group_elements * args.tile + q] -=
          args.zero_point * _mm512_reduce_add_epi32(x);
      std::int32_t words[2][4];
      _mm_storeu_si128(reinterpret_cast<__m128i*>(words[0]), _mm512_cvtepi32_epi8(x));
      const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(128)), 8);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(words[1]), _mm512_cvtepi32_epi8(high));
      for (std::uint32_t part = 0; part < args.parts; ++part) {
        for (std::uint32_t w = 0; w < 4; ++w) {
          out[(part * num_words + d / 4 + w) * args.tile] = words[part][w];
        }
      }
    }
  }
}

template <int kBits, int kParts>
inline void fill_scores(CodeKernels& kernels) {
  constexpr int b = kBits == 8 ? 0 : 1;
  kernels.score[b][kParts - 1][0] = score<kBits, kParts, 1>;
  kernels.score[b][kParts - 1][1] = score<kBits, kParts, 2>;
  kernels.score[b][kParts - 1][2] = score<kBits, kParts, 4>;
  kernels.score[b][kParts - 1][3] = score<kBits, kParts, 8>;
}

template <int kBits>
inline void fill_codes(CodeKernels& kernels) {
  constexpr int b = kBits == 8 ? 0 : 1;
  fill_scores<kBits, 1>(kernels);
  fill_scores<kBits, 2>(kernels);
  kernels.accumulate[b][0] = accumulate<kBits, 1>;
  kernels.accumulate[b][1] = accumulate<kBits, 2>;
  kernels.accumulate[b][2] = accumulate<kBits, 4>;
  kernels.accumulate[b][3] = accumulate<kBits, 8>;
}

}  // namespace kvarto::avx512vnni
