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
// As in the f32 kernels: a line of the next rows into L2, spread over the loop.
KVARTO_INLINE void prefetch(const std::byte* p) { __builtin_prefetch(p, 0, 2); }
KVARTO_INLINE __m512i load_line(const std::byte* p) { return _mm512_loadu_si512(p); }
KVARTO_INLINE __m512i broadcast(const std::int32_t* p) { return _mm512_set1_epi32(*p); }
KVARTO_INLINE __m512i broadcast_bytes(const std::int8_t* p) {
  std::int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}
// The instruction itself: GCC 12 copies accumulators of the intrinsic from register to register.
KVARTO_INLINE __m512i add_dot(__m512i acc, __m512i codes, __m512i operand) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(operand));
  return acc;
}
KVARTO_INLINE __m512i low_codes(__m512i line) {
  return _mm512_and_si512(line, _mm512_set1_epi8(15));
}
KVARTO_INLINE __m512i high_codes(__m512i line) {
  return _mm512_and_si512(_mm512_srli_epi16(line, 4), _mm512_set1_epi8(15));
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

// The lines to prefetch are shared out among the passes of a query tile over the same lines: a
// burst would fill the buffers that loads need. Whether vector `i` of kVecs is in a pass's share.
inline constexpr int kNoShare = -1;
template <int kVecs, int kPasses>
constexpr bool has_share(int i, int share) {
  return share != kNoShare && i % smaller(kVecs, kPasses) == share;
}

// ---------------------------------------------------------------- scores

// Where the sums of one group of elements go.
struct GroupScores {
  const float* row_scales;
  const std::int32_t* query_scales;  // f32 bits; null: more groups follow
  float* scores;
  bool is_first;
};

template <int kParts, int kQueries, int kTiles>
KVARTO_INLINE void add_group(const __m512i* acc, const GroupScores& to) {
  KVARTO_UNROLL(kTiles, t) {
    const __m512 row_scale = _mm512_loadu_ps(to.row_scales + t * kTileRows);
    KVARTO_UNROLL(kQueries, g) {
      __m512i sum = acc[g * kTiles + t];
      if constexpr (kParts == 2) {
        sum = _mm512_add_epi32(sum, _mm512_slli_epi32(acc[(kQueries + g) * kTiles + t], 8));
      }
      float* out = to.scores + g * kChunkRows + t * kTileRows;
      __m512 x = _mm512_cvtepi32_ps(sum);
      x = to.is_first ? _mm512_mul_ps(x, row_scale)
                      : _mm512_fmadd_ps(x, row_scale, _mm512_loadu_ps(out));
      if (to.query_scales != nullptr) {
        x = _mm512_mul_ps(x, _mm512_castsi512_ps(broadcast(to.query_scales + g)));
      }
      _mm512_storeu_ps(out, x);
    };
  };
}

// Tiles [tile, tile + kTiles) by queries [query, query + kQueries) of a query tile of kStride.
template <int kBits, int kParts, int kStride, int kQueries, int kTiles, int kShare>
KVARTO_INLINE void score_part(const CodeScoreArgs& args, std::uint32_t tile, std::uint32_t query) {
  constexpr int kWords = 8 / kBits;  // elements / 4 of one line
  const std::byte* k[kTiles];
  const std::byte* next[kTiles];
  KVARTO_UNROLL(kTiles, t) {
    k[t] = args.k + args.offsets[tile + t];
    next[t] = kShare != kNoShare ? args.next_k + args.next_offsets[tile + t] : nullptr;
  };
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
  for (std::size_t group = 0; group < num_groups; ++group) {
    const std::size_t end = num_words - word < group_words ? num_words : word + group_words;
    __m512i acc[kParts * kQueries * kTiles];
    begin_sums<kParts, kQueries, kTiles>(acc, zeros + group * kStride);
    for (; word < end; word += kWords) {
      __m512i line[kTiles];
      KVARTO_UNROLL(kTiles, t) {
        line[t] = load_line(k[t]);
        k[t] += kLine;
        if constexpr (has_share<kTiles, kStride / kQueries>(t, kShare)) {
          prefetch(next[t]);
          next[t] += kLine;
        }
      };
      KVARTO_UNROLL(kWords, w) {
        __m512i codes[kTiles];
        KVARTO_UNROLL(kTiles, t) {
          codes[t] = kBits == 8 ? line[t] : w == 0 ? low_codes(line[t]) : high_codes(line[t]);
        };
        KVARTO_UNROLL(kQueries, g) {
          const __m512i b = broadcast(low + (word + w) * kStride + g);
          KVARTO_UNROLL(kTiles, t) {
            acc[g * kTiles + t] = add_dot(acc[g * kTiles + t], codes[t], b);
          };
          if constexpr (kParts == 2) {
            const __m512i h = broadcast(high + (word + w) * kStride + g);
            KVARTO_UNROLL(kTiles, t) {
              acc[(kQueries + g) * kTiles + t] =
                  add_dot(acc[(kQueries + g) * kTiles + t], codes[t], h);
            };
          }
        };
      };
    }
    const bool is_last = group + 1 == num_groups;
    add_group<kParts, kQueries, kTiles>(
        acc, {row_scales + group * kChunkRows, is_last ? scales : nullptr, scores, group == 0});
  }
}

template <int kBits, int kParts, int kStride, int kQueries, int kTiles>
KVARTO_INLINE void score_queries(const CodeScoreArgs& args, std::uint32_t tile) {
  KVARTO_UNROLL(kStride / kQueries, i) {
    constexpr auto kQuery = static_cast<std::uint32_t>(i * kQueries);
    if (args.next_k != nullptr) {
      score_part<kBits, kParts, kStride, kQueries, kTiles, i>(args, tile, kQuery);
    } else {
      score_part<kBits, kParts, kStride, kQueries, kTiles, kNoShare>(args, tile, kQuery);
    }
  };
}

// Two vectors of keys and half of the registers for sums: what a core can read from its first
// level, 2 vectors a cycle, then feeds both dot product units.
template <int kBits, int kParts, int kStride>
void score(const CodeScoreArgs& args) {
  constexpr int kQueries = smaller(kStride, kParts == 2 ? 4 : 8);
  constexpr int kTiles = smaller(kMaxTiles, 16 / (kParts * kQueries));
  std::uint32_t tile = 0;
  for (; tile + kTiles <= args.count; tile += kTiles) {
    score_queries<kBits, kParts, kStride, kQueries, kTiles>(args, tile);
  }
  if constexpr (kTiles > 1) {
    for (; tile < args.count; ++tile) {
      score_queries<kBits, kParts, kStride, kQueries, 1>(args, tile);
    }
  }
}

// ---------------------------------------------------------------- values

// Adds the sums of a chunk to the accumulators.
template <int kParts, int kQueries, int kColumns>
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
      __m512i sum = acc[g * kColumns + c];
      if constexpr (kParts == 2) {
        sum = _mm512_add_epi32(sum, _mm512_slli_epi32(acc[(kQueries + g) * kColumns + c], 8));
      }
      float* to = out + std::size_t{args.acc_stride} * g + c * 16;
      _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale,
                                           _mm512_mul_ps(_mm512_loadu_ps(to), correction)));
    };
  };
}

// Columns of 16 elements [column, column + kColumns) of one group, all rows of the chunk.
template <int kBits, int kParts, int kQueries, int kColumns, int kPasses, int kShare>
KVARTO_INLINE void accumulate_part(const CodeAccumulateArgs& args, std::uint32_t column,
                                   std::uint32_t query) {
  constexpr int kLines = kTileRows * kBits / 32;  // of one tile and column
  constexpr int kQuads = 8 / kBits;               // quads of rows in one line
  const std::uint32_t element = column * 16;
  const std::uint32_t group = element / args.group_elements;
  constexpr int kQueryBytes = kParts * static_cast<int>(kChunkRows);
  const std::size_t pair = std::size_t{group} * args.num_queries + query;
  const std::int8_t* codes = args.codes + pair * kQueryBytes;
  __m512i acc[kParts * kQueries * kColumns];
  begin_sums<kParts, kQueries, kColumns>(acc, args.zeros + pair);
  for (std::uint32_t tile = 0; tile < args.count; ++tile) {
    const std::byte* v = args.v + args.offsets[tile] + column * (kLines * kLine);
    const std::byte* next = kShare != kNoShare
                                ? args.next_v + args.next_offsets[tile] + column * (kLines * kLine)
                                : nullptr;
    const std::int8_t* p = codes + tile * 4;
    KVARTO_UNROLL(kLines, j) {
      __m512i line[kColumns];
      KVARTO_UNROLL(kColumns, c) {
        line[c] = load_line(v + (c * kLines + j) * kLine);
        if constexpr (has_share<kColumns, kPasses>(c, kShare)) {
          prefetch(next + (c * kLines + j) * kLine);
        }
      };
      KVARTO_UNROLL(kQuads, w) {
        __m512i x[kColumns];
        KVARTO_UNROLL(kColumns, c) {
          x[c] = kBits == 8 ? line[c] : w == 0 ? low_codes(line[c]) : high_codes(line[c]);
        };
        KVARTO_UNROLL(kQueries, g) {
          const std::int8_t* word = p + g * kQueryBytes + (j * kQuads + w) * 16;
          const __m512i b = broadcast_bytes(word);
          KVARTO_UNROLL(kColumns, c) {
            acc[g * kColumns + c] = add_dot(acc[g * kColumns + c], x[c], b);
          };
          if constexpr (kParts == 2) {
            const __m512i h = broadcast_bytes(word + kChunkRows);
            KVARTO_UNROLL(kColumns, c) {
              acc[(kQueries + g) * kColumns + c] =
                  add_dot(acc[(kQueries + g) * kColumns + c], x[c], h);
            };
          }
        };
      };
    };
  }
  add_columns<kParts, kQueries, kColumns>(acc, args, column, query);
}

template <int kBits, int kParts, int kQueries, int kPasses, int kShare>
KVARTO_INLINE void accumulate_columns(const CodeAccumulateArgs& args, std::uint32_t query) {
  constexpr int kColumns = 2;  // a group has 32 elements or more
  const std::uint32_t end = (args.first_element + args.dim) / 16;
  std::uint32_t column = args.first_element / 16;
  for (; column + kColumns <= end; column += kColumns) {
    accumulate_part<kBits, kParts, kQueries, kColumns, kPasses, kShare>(args, column, query);
  }
  if (column < end) accumulate_part<kBits, kParts, kQueries, 1, 1, kNoShare>(args, column, query);
}

template <int kBits, int kParts, int kStride>
void accumulate(const CodeAccumulateArgs& args) {
  constexpr int kQueries = smaller(kStride, kParts == 2 ? 4 : 8);
  constexpr int kPasses = kStride / kQueries;
  KVARTO_UNROLL(kPasses, i) {
    constexpr auto kQuery = static_cast<std::uint32_t>(i * kQueries);
    if (args.next_v != nullptr) {
      accumulate_columns<kBits, kParts, kQueries, kPasses, i>(args, kQuery);
    } else {
      accumulate_columns<kBits, kParts, kQueries, kPasses, kNoShare>(args, kQuery);
    }
  };
}

// ---------------------------------------------------------------- operands

// Lane i = op over the lanes of a[i], for 16 vectors.
template <typename Op>
KVARTO_INLINE __m512i reduce_each(const __m512i* a, const Op& op) {
  __m512i t[8];
  __m512i u[4];
  KVARTO_UNROLL(8, i) {
    t[i] = op(_mm512_unpacklo_epi32(a[i], a[i + 8]), _mm512_unpackhi_epi32(a[i], a[i + 8]));
  };
  KVARTO_UNROLL(4, i) {
    u[i] = op(_mm512_unpacklo_epi32(t[i], t[i + 4]), _mm512_unpackhi_epi32(t[i], t[i + 4]));
  };
  const __m512i v0 =
      op(_mm512_shuffle_i32x4(u[0], u[1], 0x44), _mm512_shuffle_i32x4(u[0], u[1], 0xee));
  const __m512i v1 =
      op(_mm512_shuffle_i32x4(u[2], u[3], 0x44), _mm512_shuffle_i32x4(u[2], u[3], 0xee));
  const __m512i w = op(_mm512_shuffle_i32x4(v0, v1, 0x88), _mm512_shuffle_i32x4(v0, v1, 0xdd));
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), w);
}

// Four vectors of operands to their low and high bytes: packing puts the four rows of a word side
// by side, words in the order that QuantiseArgs gives.
template <int kParts>
KVARTO_INLINE void store_operands(const __m512i* x, std::int8_t* to) {
  const __m512i a = _mm512_packs_epi32(x[0], x[1]);
  const __m512i b = _mm512_packs_epi32(x[2], x[3]);
  if constexpr (kParts == 1) {
    _mm512_storeu_si512(to, _mm512_packs_epi16(a, b));
  } else {
    const __m512i low = _mm512_set1_epi16(255);
    const __m512i half = _mm512_set1_epi16(128);  // the low byte has a sign
    _mm512_storeu_si512(to,
                        _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low)));
    _mm512_storeu_si512(to + kLine,
                        _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(a, half), 8),
                                           _mm512_srai_epi16(_mm512_add_epi16(b, half), 8)));
  }
}

// Pairs of group and query [first, first + count), count <= 16.
template <int kParts>
KVARTO_INLINE void quantise_pairs(const QuantiseArgs& args, const __mmask16* rows,
                                  std::size_t first, std::uint32_t count) {
  alignas(64) float weights[16][kChunkRows];
  __m512i reduced[16];
  std::size_t group = first / args.num_queries;
  std::size_t query = first % args.num_queries;
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (std::uint32_t i = 0; i < count; ++i) {
    const float* p = args.p + query * kChunkRows;
    const float* s = args.row_scales + group * kChunkRows;
    __m512i largest = _mm512_setzero_si512();
    KVARTO_UNROLL(kMaxTiles, n) {
      const __m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(rows[n], p + n * 16),
                                     _mm512_maskz_loadu_ps(rows[n], s + n * 16));
      _mm512_store_ps(weights[i] + n * 16, x);
      // The bits of magnitudes order as they do; NaN is the largest and so reaches the scale.
      largest = _mm512_max_epi32(largest, _mm512_and_si512(_mm512_castps_si512(x), magnitude));
    };
    reduced[i] = largest;
    if (++query == args.num_queries) {
      query = 0;
      ++group;
    }
  }
  for (std::uint32_t i = count; i < 16; ++i) reduced[i] = _mm512_setzero_si512();
  const __m512 largest = _mm512_castsi512_ps(
      reduce_each(reduced, [](__m512i a, __m512i b) { return _mm512_max_epi32(a, b); }));
  constexpr float kTop = kParts == 2 ? kOperandMax16 : kOperandMax8;
  alignas(64) float units[16];
  // Below the normal numbers the quotient overflows: nothing of weight is lost there.
  const __mmask16 is_some = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(0x1p-100f), _CMP_NLT_UQ);
  _mm512_store_ps(units, _mm512_maskz_div_ps(is_some, _mm512_set1_ps(kTop), largest));
  const __mmask16 in_use = static_cast<__mmask16>((1u << count) - 1);
  _mm512_mask_storeu_ps(args.scales + first, in_use,
                        _mm512_mul_ps(largest, _mm512_set1_ps(1 / kTop)));
  for (std::uint32_t i = 0; i < count; ++i) {
    const __m512 unit = _mm512_set1_ps(units[i]);
    __m512i x[kMaxTiles];
    KVARTO_UNROLL(kMaxTiles, n) {
      x[n] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(weights[i] + n * 16), unit));
    };
    reduced[i] = _mm512_add_epi32(_mm512_add_epi32(x[0], x[1]), _mm512_add_epi32(x[2], x[3]));
    store_operands<kParts>(x, args.codes + (first + i) * kParts * kChunkRows);
  }
  const __m512i sums =
      reduce_each(reduced, [](__m512i a, __m512i b) { return _mm512_add_epi32(a, b); });
  _mm512_mask_storeu_epi32(args.zeros + first, in_use,
                           _mm512_mullo_epi32(sums, _mm512_set1_epi32(-args.zero_point)));
}

inline void quantise(const QuantiseArgs& args) {
  __mmask16 rows[kMaxTiles];
  const std::uint64_t all = ((args.end_row == 64 ? 0 : std::uint64_t{1} << args.end_row) - 1) &
                            ~((std::uint64_t{1} << args.first_row) - 1);
  KVARTO_UNROLL(kMaxTiles, n) { rows[n] = static_cast<__mmask16>(all >> (n * 16)); };
  const std::size_t num_pairs = std::size_t{args.num_queries} * args.num_groups;
  for (std::size_t first = 0; first < num_pairs; first += 16) {
    const auto count = static_cast<std::uint32_t>(num_pairs - first < 16 ? num_pairs - first : 16);
    args.parts == 2 ? quantise_pairs<2>(args, rows, first, count)
                    : quantise_pairs<1>(args, rows, first, count);
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
inline void fill_codes(CodeKernels& kernels) {
  constexpr int b = kBits == 8 ? 0 : 1;
  kernels.score[b][kParts - 1][0] = score<kBits, kParts, 1>;
  kernels.score[b][kParts - 1][1] = score<kBits, kParts, 2>;
  kernels.score[b][kParts - 1][2] = score<kBits, kParts, 4>;
  kernels.score[b][kParts - 1][3] = score<kBits, kParts, 8>;
  kernels.accumulate[b][kParts - 1][0] = accumulate<kBits, kParts, 1>;
  kernels.accumulate[b][kParts - 1][1] = accumulate<kBits, kParts, 2>;
  kernels.accumulate[b][kParts - 1][2] = accumulate<kBits, kParts, 4>;
  kernels.accumulate[b][kParts - 1][3] = accumulate<kBits, kParts, 8>;
}

}  // namespace kvarto::avx512vnni
