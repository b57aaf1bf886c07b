// Attention in half precision (AVX512-FP16): twice the multiply-adds of f32 an instruction.
//
// A sum of products is built from chains of kChainTerms multiply-adds in 16 bits, the chains are
// added in 16 bits, and the total goes to f32. The error of a term therefore grows with the length
// of a chain and the number of chains, not with the number of terms; attention/half_bound.h has the
// bound. Chains of 32 and 16 with one total cost 0.68 and 0.73 of the multiply-add loop (8 queries
// x 64 rows at dim 128) since a total in 16 bits takes one addition where f32 takes seven
// instructions; 16 is the more exact one as well.

#pragma once

namespace kvarto::KVARTO_ISA {

using Half = __m512h;
inline constexpr int kHalfLanes = 32;
inline constexpr int kHalfBytes = 2;
inline constexpr std::size_t kRowTiles = kChunkRows / kTile;
inline constexpr std::uint32_t kChainTerms = kHalfChainTerms;
inline constexpr std::uint32_t kTotalChains = kHalfTotalChains;

KVARTO_INLINE Half half_zero() { return _mm512_setzero_ph(); }
// Both halves of a word in every lane.
KVARTO_INLINE Half broadcast_pair(const float* word) {
  return _mm512_castps_ph(_mm512_set1_ps(*word));
}
KVARTO_INLINE Vec low_floats(Half x) {
  return _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_castph_si512(x)));
}
KVARTO_INLINE Vec high_floats(Half x) {
  return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(_mm512_castph_si512(x), 1));
}
// Each of 16 numbers twice.
KVARTO_INLINE Vec pairs_of(__m256i halves) {
  // Bytes 0 1 0 1, 2 3 2 3, and so on: a permutation of bytes is one instruction inside the
  // processor, one of 16-bit numbers two.
  const __m512i numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i bytes = _mm512_add_epi32(
      _mm512_set1_epi32(0x01000100), _mm512_mullo_epi32(numbers, _mm512_set1_epi32(0x02020202)));
  return _mm512_castsi512_ps(_mm512_permutexvar_epi8(bytes, _mm512_castsi256_si512(halves)));
}

// 2^x for x <= 0, for results that are rounded to 16 bits: 0 there from 2^-60 on. Polynomial:
// minimax of 2^r on [0, 1), relative error 7.5e-5 (Remez exchange), a quarter of the deviation of
// that rounding.
KVARTO_INLINE Vec rough_exp2(Vec x) {
  const Vec bounded = max(x, set1(-60.0f));
  const Vec r = _mm512_reduce_ps(bounded, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  Vec p = set1(0.0780245227f);
  p = fma(p, r, set1(0.226067155f));
  p = fma(p, r, set1(0.695833541f));
  p = fma(p, r, set1(0.999925219f));
  return _mm512_scalef_ps(p, bounded);
}

// Where a vector of 32 rows comes from: two tiles, one tile twice (only its low half counts), or a
// pair that join_tiles has made.
enum class KeyForm : std::uint8_t { kPair, kSingle, kJoined };

// Row by row of a key tile: one element of its 16 rows from `first`, another 16 from `second`.
KVARTO_INLINE Half join_rows(const std::byte* first, const std::byte* second) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  return _mm512_castsi512_ph(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

template <int kSums>
KVARTO_INLINE void add_chains(Half* total, const Half* acc, bool is_first) {
  if (is_first) {
    KVARTO_UNROLL(kSums, i) { total[i] = acc[i]; };
  } else {
    KVARTO_UNROLL(kSums, i) { total[i] = _mm512_add_ph(total[i], acc[i]); };
  }
}

// Totals of scores to f32, added to what is there unless they are the first.
template <int kQueries, int kVecs, bool kIsSingle>
KVARTO_INLINE void store_half_scores(const Half* total, float* scores, bool is_first) {
  KVARTO_UNROLL(kQueries, g) {
    KVARTO_UNROLL(kVecs, v) {
      float* to = scores + g * static_cast<int>(kChunkRows) + v * kHalfLanes;
      Vec low = low_floats(total[g * kVecs + v]);
      if (!is_first) low = add(low, load(to));
      store(to, low);
      if constexpr (!kIsSingle) {
        Vec high = high_floats(total[g * kVecs + v]);
        if (!is_first) high = add(high, load(to + kLanes));
        store(to + kLanes, high);
      }
    };
  };
}

template <int kStride, int kQueries, int kVecs, KeyForm kForm, bool kPrefetch>
KVARTO_INLINE void half_score_part(const ScoreArgs& args, std::uint32_t tile, std::uint32_t query) {
  constexpr bool kIsSingle = kForm == KeyForm::kSingle;
  constexpr int kTiles = kIsSingle ? 1 : 2 * kVecs;
  constexpr std::size_t kStepBytes = std::size_t{kTile} * kHalfBytes;
  constexpr int kSums = kQueries * kVecs;
  const std::byte* k[kTiles];
  const std::byte* next[kTiles];
  KVARTO_UNROLL(kTiles, t) {
    k[t] = args.k + args.offsets[tile + t];
    next[t] = kPrefetch ? args.next_k + args.next_offsets[tile + t] : nullptr;
  };
  const float* q = args.q + query;
  Half total[kSums];
  float* out = args.scores + query * kChunkRows + tile * kTile;
  const auto chain = [&](std::size_t offset, std::uint32_t terms, bool is_first)
      __attribute__((always_inline)) {
    Half acc[kSums];
    KVARTO_UNROLL(kSums, i) { acc[i] = half_zero(); };
    const auto step = [&](std::size_t at) __attribute__((always_inline)) {
      Half keys[kVecs];
      KVARTO_UNROLL(kVecs, v) {
        if constexpr (kForm == KeyForm::kJoined) {
          keys[v] = _mm512_loadu_ph(k[2 * v] + 2 * at);
        } else {
          keys[v] = join_rows(k[2 * v] + at, k[2 * v + (kIsSingle ? 0 : 1)] + at);
        }
      };
      KVARTO_UNROLL(kQueries, g) {
        const Half b = broadcast_pair(q + g);
        KVARTO_UNROLL(kVecs, v) {
          acc[g * kVecs + v] = _mm512_fmadd_ph(keys[v], b, acc[g * kVecs + v]);
        };
      };
      q += kStride;
    };
    const std::size_t end = offset + terms * kStepBytes;
    for (; offset + 2 * kStepBytes <= end; offset += 2 * kStepBytes) {  // a cache line of a tile
      if constexpr (kPrefetch) {
        KVARTO_UNROLL(kTiles, t) { prefetch(next[t] + offset); };
      }
      step(offset);
      step(offset + kStepBytes);
    }
    if (offset < end) step(offset);
    add_chains<kSums>(total, acc, is_first);
  };
  for (std::uint32_t d = 0; d < args.dim;) {
    const std::uint32_t begin = d;
    for (std::uint32_t i = 0; i < kTotalChains && d < args.dim; ++i) {
      const std::uint32_t terms = args.dim - d < kChainTerms ? args.dim - d : kChainTerms;
      chain(d * kStepBytes, terms, i == 0);
      d += terms;
    }
    store_half_scores<kQueries, kVecs, kIsSingle>(total, out, begin == 0);
  }
}

template <int kStride, int kVecs, KeyForm kForm>
KVARTO_INLINE void half_score_tile(const ScoreArgs& args, std::uint32_t tile) {
  if (args.next_k != nullptr) {
    half_score_part<kStride, kStride, kVecs, kForm, true>(args, tile, 0);
  } else {
    half_score_part<kStride, kStride, kVecs, kForm, false>(args, tile, 0);
  }
}

// Vectors two by two, and what is left.
template <int kStride, KeyForm kForm>
KVARTO_INLINE std::uint32_t half_score_form(const ScoreArgs& args, std::uint32_t count) {
  std::uint32_t tile = 0;
  for (; tile + 4 <= count; tile += 4) half_score_tile<kStride, 2, kForm>(args, tile);
  if (tile + 2 <= count) {
    half_score_tile<kStride, 1, kForm>(args, tile);
    tile += 2;
  }
  return tile;
}

template <int kStride>
void half_score_tiles(const ScoreArgs& args) {
  if (args.is_joined) {
    half_score_form<kStride, KeyForm::kJoined>(args, (args.count + 1) / 2 * 2);
    return;
  }
  const std::uint32_t tile = half_score_form<kStride, KeyForm::kPair>(args, args.count);
  if (tile < args.count) half_score_tile<kStride, 1, KeyForm::kSingle>(args, tile);
}

inline void half_join_tiles(const JoinTilesArgs& args) {
  constexpr std::size_t kStepBytes = std::size_t{kTile} * kHalfBytes;
  std::byte* to = args.joined;
  for (std::uint32_t tile = 0; tile < args.count; tile += 2) {
    const std::byte* first = args.k + args.offsets[tile];
    const std::byte* second = args.k + args.offsets[tile + 1 < args.count ? tile + 1 : tile];
    for (std::size_t at = 0; at < args.dim * kStepBytes; at += kStepBytes, to += 2 * kStepBytes) {
      _mm512_storeu_ph(to, join_rows(first + at, second + at));
    }
  }
}

// Totals of values to f32, with what was accumulated before.
template <int kQueries, int kVecs, bool kIsTail>
KVARTO_INLINE void add_half_values(const AccumulateArgs& args, const Half* total,
                                   std::uint32_t element, std::uint32_t query) {
  const std::uint32_t rest = args.dim - element;
  const std::size_t acc_stride = args.acc_stride;
  float* out = args.acc + query * acc_stride + element;
  KVARTO_UNROLL(kQueries, g) {
    const Vec correction = set1(args.correction[query + g]);
    const Vec share = set1(args.share[query + g]);
    KVARTO_UNROLL(kVecs, i) {
      float* to = out + g * acc_stride + i * kHalfLanes;
      const Half sum = total[g * kVecs + i];
      store(to, fma(low_floats(sum), share, mul(load(to), correction)));
      // Accumulators end at a multiple of 16 floats, which a tail may end before.
      if (!kIsTail || rest > kLanes) {
        store(to + kLanes, fma(high_floats(sum), share, mul(load(to + kLanes), correction)));
      }
    };
  };
}

// Where line `number` of the next rows lies, in the order in which they are prefetched, for a strip
// of kLines lines a row. Whole chunks: of four tiles in turn, as four streams are read from memory
// faster than one.
template <int kLines>
KVARTO_INLINE const std::byte* next_line(const AccumulateArgs& args, const std::byte* next,
                                         std::size_t number) {
  constexpr std::size_t kLineBytes = kHalfLanes * kHalfBytes;
  std::size_t row = args.first_row + number / kLines;
  std::size_t line = number % kLines;
  if (args.end_row - args.first_row == kChunkRows) {
    row = number % kRowTiles * kTile + number / kRowTiles / kLines;
    line = number / kRowTiles % kLines;
  }
  return next + args.next_offsets[row] + line * kLineBytes;
}

// kVecs vectors of 32 elements from `element` on; kIsTail: one vector of fewer elements. With
// kPrefetch one of kPasses calls over different queries prefetches its share of the next rows.
template <int kQueries, int kVecs, int kPasses, bool kIsTail, bool kPrefetch>
KVARTO_INLINE void half_accumulate_strip(const AccumulateArgs& args, std::uint32_t element,
                                         std::uint32_t query) {
  constexpr int kSums = kQueries * kVecs;
  constexpr int kVecBytes = kHalfLanes * kHalfBytes;
  const std::uint32_t rest = args.dim - element;
  const __mmask32 mask = kIsTail ? static_cast<__mmask32>((std::uint64_t{1} << rest) - 1) : ~0u;
  const std::byte* v = args.v + element * kHalfBytes;
  const std::byte* next = kPrefetch ? args.next_v + element * kHalfBytes : nullptr;
  const std::uint32_t rows_before = query / kQueries * (args.end_row - args.first_row);
  const float* p = args.p + query * kChunkRows;
  Half total[kSums];
  const auto chain = [&](std::size_t row, std::size_t end, bool is_first)
      __attribute__((always_inline)) {
    Half acc[kSums];
    KVARTO_UNROLL(kSums, i) { acc[i] = half_zero(); };
    for (; row < end; ++row) {
      const std::byte* values = v + args.offsets[row];
      if constexpr (kPrefetch) {
        const std::size_t step = rows_before + row - args.first_row;
        constexpr int kLines = larger(1, kVecs / kPasses);
        KVARTO_UNROLL(kLines, i) {
          prefetch(next_line<kVecs>(args, next, step * kLines + static_cast<std::size_t>(i)));
        };
      }
      Half x[kVecs];
      KVARTO_UNROLL(kVecs, i) {
        x[i] = _mm512_castsi512_ph(kIsTail ? _mm512_maskz_loadu_epi16(mask, values)
                                           : _mm512_loadu_si512(values + i * kVecBytes));
      };
      KVARTO_UNROLL(kQueries, g) {
        const Half b = broadcast_pair(p + g * static_cast<int>(kChunkRows) + row);
        KVARTO_UNROLL(kVecs, i) {
          acc[g * kVecs + i] = _mm512_fmadd_ph(x[i], b, acc[g * kVecs + i]);
        };
      };
    }
    add_chains<kSums>(total, acc, is_first);
  };
  for (std::size_t row = args.first_row; row < args.end_row; row += kChainTerms) {
    const std::size_t end = args.end_row - row < kChainTerms ? args.end_row : row + kChainTerms;
    chain(row, end, row == args.first_row);
  }
  add_half_values<kQueries, kVecs, kIsTail>(args, total, element, query);
}

template <int kStride, int kQueries, int kVecs, bool kIsTail>
KVARTO_INLINE void half_accumulate_queries(const AccumulateArgs& args, std::uint32_t element) {
  constexpr int kPasses = kStride / kQueries;
  for (std::uint32_t query = 0; query < kStride; query += kQueries) {
    if (args.next_v != nullptr) {
      half_accumulate_strip<kQueries, kVecs, kPasses, kIsTail, true>(args, element, query);
    } else {
      half_accumulate_strip<kQueries, kVecs, kPasses, kIsTail, false>(args, element, query);
    }
  }
}

// Strips of 128 elements by 4 queries (a broadcast serves four multiply-adds: 0.77 of the
// multiply-add loop), then of 64 and 32 elements by all queries (0.73).
template <int kStride>
void half_accumulate(const AccumulateArgs& args) {
  constexpr int kFew = smaller(kStride, 4);
  std::uint32_t element = 0;
  for (; element + 4 * kHalfLanes <= args.dim; element += 4 * kHalfLanes) {
    half_accumulate_queries<kStride, kFew, 4, false>(args, element);
  }
  if (element + 2 * kHalfLanes <= args.dim) {
    half_accumulate_queries<kStride, kStride, 2, false>(args, element);
    element += 2 * kHalfLanes;
  }
  if (element + kHalfLanes <= args.dim) {
    half_accumulate_queries<kStride, kStride, 1, false>(args, element);
    element += kHalfLanes;
  }
  if (element < args.dim) half_accumulate_queries<kStride, kStride, 1, true>(args, element);
}

// Probabilities of a chunk relative to its own maximum, at most 2^-kHalfHeadroom, as pairs;
// `correction` and `share` bring what was accumulated before and this chunk to the common maximum.
// The sum is that of the rounded probabilities, so that weights add up to 1.
template <int kMaxQueries>
KVARTO_INLINE void half_softmax_block(const SoftmaxArgs& args, std::uint32_t first_query,
                                      std::uint32_t num_queries, bool is_plain) {
  const std::uint32_t begin = args.first_row / kLanes * kLanes;
  const std::uint32_t end = (args.end_row + kLanes - 1) / kLanes * kLanes;
  alignas(64) float largest_of[kMaxQueries];
  store(largest_of, set1(kMinusInfinity));
  for (std::uint32_t i = 0; i < num_queries; ++i) {
    const std::uint32_t query = first_query + i;
    float* scores = args.scores + std::size_t{query} * kChunkRows;
    if (!is_plain) shape_scores(args, query, scores, begin, end);
    Vec largest = load(scores + begin);
    for (std::uint32_t row = begin + kLanes; row < end; row += kLanes) {
      largest = max(largest, load(scores + row));
    }
    largest_of[i] = reduce_max(largest);
  }
  const __mmask16 used = static_cast<__mmask16>((1u << num_queries) - 1);
  const Vec before = _mm512_maskz_loadu_ps(used, args.maximum + first_query);
  const Vec largest = add(load(largest_of), set1(kHalfHeadroom));
  const Vec after = max(largest, before);
  // With nothing visible so far every score is -infinity, and so must stay every difference.
  const Vec lowest = set1(-1e30f);
  const Vec reference = max(after, lowest);
  _mm512_mask_storeu_ps(args.maximum + first_query, used, after);
  _mm512_mask_storeu_ps(args.correction + first_query, used, exp2(sub(before, reference)));
  _mm512_mask_storeu_ps(args.share + first_query, used, exp2(sub(largest, reference)));
  store(largest_of, max(largest, lowest));
  for (std::uint32_t i = 0; i < num_queries; ++i) {
    const std::uint32_t query = first_query + i;
    float* scores = args.scores + std::size_t{query} * kChunkRows;
    const Vec m = set1(largest_of[i]);
    Vec sum = zero();
    for (std::uint32_t row = begin; row < end; row += kLanes) {
      const __m256i p = to_half<Element::kF16>(rough_exp2(sub(load(scores + row), m)));
      sum = add(sum, from_half<Element::kF16>(p));
      store(scores + row, pairs_of(p));
    }
    float* sums = args.sum + std::size_t{query} * kPadFloats;
    store(sums, fma(sum, set1(args.share[query]), mul(load(sums), set1(args.correction[query]))));
  }
}

inline void half_softmax(const SoftmaxArgs& args) {
  const bool is_plain = args.first_row % kLanes == 0 && args.end_row % kLanes == 0 &&
                        args.soft_cap <= 0 && args.slopes == nullptr && args.query_end == nullptr;
  for (std::uint32_t first = 0; first < args.num_queries; first += kLanes) {
    const std::uint32_t rest = args.num_queries - first;
    half_softmax_block<kLanes>(args, first, rest < kLanes ? rest : kLanes, is_plain);
  }
}

// Sixteen elements of all queries of a tile at a time, transposed in registers.
inline void half_pack_query_tile(const PackQueriesArgs& args) {
  const auto queries = static_cast<__mmask16>((1u << args.tile) - 1);
  const Vec scale = set1(args.scale);
  for (std::uint32_t first = 0; first < args.dim; first += kLanes) {
    const std::uint32_t rest = args.dim - first;
    const std::uint32_t count = rest < kLanes ? rest : kLanes;
    const auto elements = static_cast<__mmask16>((1u << count) - 1);
    Vec words[kLanes];
    KVARTO_UNROLL(kLanes, g) {
      words[g] = zero();
      if (g < static_cast<int>(kMaxQueryTile) && g < static_cast<int>(args.num_queries)) {
        const Vec x = mul(_mm512_maskz_loadu_ps(elements, args.rows[g] + first), scale);
        words[g] = pairs_of(to_half<Element::kF16>(x));
      }
    };
    transpose(words);
    float* out = args.out + std::size_t{first} * args.tile;
    KVARTO_UNROLL(kLanes, d) {
      if (d < static_cast<int>(count)) {
        _mm512_mask_storeu_ps(out + static_cast<std::size_t>(d) * args.tile, queries, words[d]);
      }
    };
  }
}

}  // namespace kvarto::KVARTO_ISA
