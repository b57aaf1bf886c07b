// Many queries against one chunk of rows, in half precision (AVX512-FP16): see wide_kernels.h, and
// half_inl.h for how sums are built.
//
// Totals of chains go through memory: that is where 16 bits become 32 without the shuffle that the
// conversion of a register takes, and the registers are the chains' own.

#pragma once

namespace kvarto::KVARTO_ISA {

inline constexpr int kHalfVecBytes = kHalfLanes * kHalfBytes;

// Steps of a chain between two jumps: chains are too short for jumps to be foreseen.
inline constexpr int kUnrolledSteps = 5;
static_assert((kChainTerms - 1) % kUnrolledSteps == 0);

KVARTO_INLINE Half load_half(const std::byte* p) { return _mm512_loadu_ph(p); }
// Lanes [16 part, 16 part + 16) of a total.
KVARTO_INLINE Vec total_floats(const std::byte* total, int part) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(total) + part));
}

// Adds finished chains to totals in memory, or begins them.
template <int kSums>
KVARTO_INLINE void add_to_totals(std::byte* totals, const Half* acc, bool is_first) {
  if (is_first) {
    KVARTO_UNROLL(kSums, i) { _mm512_store_ph(totals + i * kHalfVecBytes, acc[i]); };
  } else {
    KVARTO_UNROLL(kSums, i) {
      std::byte* total = totals + i * kHalfVecBytes;
      _mm512_store_ph(total, _mm512_add_ph(_mm512_load_ph(total), acc[i]));
    };
  }
}

// One block of queries by kVecs tiles of 32 rows, `dim` elements of both.
struct WideHalfPart {
  const std::byte* const* k;
  const float* q;
  float* scores;
  std::uint32_t dim;
};
template <int kVecs, bool kPrefetch>
KVARTO_INLINE void wide_half_score_part(const WideHalfPart& part, bool is_first, WideWalk& walk) {
  constexpr int kSums = kWideBlock * kVecs;
  alignas(64) std::byte totals[kSums * kHalfVecBytes];
  const std::byte* k[kVecs];
  KVARTO_UNROLL(kVecs, v) { k[v] = part.k[v]; };
  const float* q = part.q;
  Half acc[kSums];
  // One element of keys and queries; the first one of a chain begins its sums.
  const auto step = [&](bool is_begin) __attribute__((always_inline)) {
    if constexpr (kPrefetch) step_walk(walk);
    Half keys[kVecs];
    KVARTO_UNROLL(kVecs, v) {
      keys[v] = load_half(k[v]);
      k[v] += kHalfVecBytes;
    };
    KVARTO_UNROLL(kWideBlock, g) {
      const Half b = broadcast_pair(q + g);
      KVARTO_UNROLL(kVecs, v) {
        Half& sum = acc[g * kVecs + v];
        sum = is_begin ? _mm512_mul_ph(keys[v], b) : _mm512_fmadd_ph(keys[v], b, sum);
      };
    };
    q += kWideBlock;
  };
  const auto chain = [&](std::uint32_t terms, bool begins_total) __attribute__((always_inline)) {
    step(true);
    std::uint32_t d = 1;
    for (; d + kUnrolledSteps <= terms; d += kUnrolledSteps) {
      KVARTO_UNROLL(kUnrolledSteps, i) {
        static_cast<void>(int{i});
        step(false);
      };
    }
    for (; d < terms; ++d) step(false);
    add_to_totals<kSums>(totals, acc, begins_total);
  };
  for (std::uint32_t d = 0; d < part.dim;) {
    for (std::uint32_t i = 0; i < kWideHalfTotalChains && d < part.dim; ++i) {
      const std::uint32_t terms = part.dim - d < kChainTerms ? part.dim - d : kChainTerms;
      chain(terms, i == 0);
      d += terms;
    }
    KVARTO_UNROLL(2 * kSums, i) {
      constexpr int kParts = 2 * kVecs;
      float* to = part.scores + i / kParts * kScoreRow + i % kParts * kLanes;
      const Vec sum = total_floats(totals + i / 2 * kHalfVecBytes, i % 2);
      store(to, is_first ? sum : add(sum, load(to)));
    };
    is_first = false;
  }
}

// All queries by kVecs tiles from `tile` on.
template <int kVecs>
KVARTO_INLINE void wide_half_score_tiles(const WideScoreArgs& args, std::uint32_t tile,
                                         WideWalk& walk) {
  constexpr std::uint32_t kPartDim = kWidePartBytes / (kVecs * kHalfVecBytes);
  static_assert(kPartDim % (kChainTerms * kWideHalfTotalChains) == 0);
  const std::size_t tile_bytes = std::size_t{args.dim} * kHalfVecBytes;
  for (std::uint32_t d = 0; d < args.dim; d += kPartDim) {
    const std::byte* k[kVecs];
    for (std::uint32_t i = 0; i < kVecs; ++i) {
      k[i] = args.keys + (tile + i) * tile_bytes + std::size_t{d} * kHalfVecBytes;
    }
    WideHalfPart part{k, nullptr, nullptr, args.dim - d < kPartDim ? args.dim - d : kPartDim};
    for (std::uint32_t block = 0; block < args.num_blocks; ++block) {
      part.q = args.q + (std::size_t{block} * args.dim + d) * kWideQueries;
      part.scores = args.scores + std::size_t{block} * kWideQueries * kChunkRows +
                    std::size_t{tile} * kHalfLanes;
      if (is_walking(walk)) {
        wide_half_score_part<kVecs, true>(part, d == 0, walk);
      } else {
        wide_half_score_part<kVecs, false>(part, d == 0, walk);
      }
    }
  }
}

inline void wide_half_score(const WideScoreArgs& args) {
  WideWalk walk = wide_walk(args.next);
  std::uint32_t tile = 0;
  for (; tile + 2 <= args.num_tiles; tile += 2) wide_half_score_tiles<2>(args, tile, walk);
  if (tile < args.num_tiles) wide_half_score_tiles<1>(args, tile, walk);
}

// One block of queries by kVecs vectors of elements, all rows.
template <int kVecs, bool kPrefetch>
KVARTO_INLINE void wide_half_accumulate_part(const WideAccumulateArgs& args, std::uint32_t element,
                                             std::uint32_t query, WideWalk& walk) {
  constexpr int kSums = kWideBlock * kVecs;
  alignas(64) std::byte totals[kSums * kHalfVecBytes];
  const std::byte* v = args.v + element * kHalfBytes;
  const float* p = args.p + std::size_t{query} * kChunkRows;
  Half acc[kSums];
  const auto step = [&](std::size_t row, bool is_begin) __attribute__((always_inline)) {
    if constexpr (kPrefetch) step_walk(walk);
    const std::byte* values = v + args.offsets[row];
    Half x[kVecs];
    KVARTO_UNROLL(kVecs, i) { x[i] = load_half(values + i * kHalfVecBytes); };
    KVARTO_UNROLL(kWideBlock, g) {
      const Half b = broadcast_pair(p + g * kScoreRow + row);
      KVARTO_UNROLL(kVecs, i) {
        Half& sum = acc[g * kVecs + i];
        sum = is_begin ? _mm512_mul_ph(x[i], b) : _mm512_fmadd_ph(x[i], b, sum);
      };
    };
  };
  const auto chain = [&](std::size_t row, std::size_t end) __attribute__((always_inline)) {
    const bool is_first = row == args.first_row;
    step(row++, true);
    for (; row + kUnrolledSteps <= end; row += kUnrolledSteps) {
      KVARTO_UNROLL(kUnrolledSteps, i) { step(row + i, false); };
    }
    for (; row < end; ++row) step(row, false);
    add_to_totals<kSums>(totals, acc, is_first);
  };
  for (std::size_t row = args.first_row; row < args.end_row; row += kChainTerms) {
    chain(row, args.end_row - row < kChainTerms ? args.end_row : row + kChainTerms);
  }
  float* out = args.acc + std::size_t{query} * args.acc_stride + element;
  KVARTO_UNROLL(kWideBlock, g) {
    const Vec correction = set1(args.correction[query + g]);
    const Vec share = set1(args.share[query + g]);
    float* to = out + g * std::size_t{args.acc_stride};
    KVARTO_UNROLL(2 * kVecs, i) {
      const Vec sum = total_floats(totals + (g * kVecs + i / 2) * kHalfVecBytes, i % 2);
      store(to + i * kLanes, fma(sum, share, mul(load(to + i * kLanes), correction)));
    };
  };
}

template <int kVecs>
KVARTO_INLINE void wide_half_accumulate_strip(const WideAccumulateArgs& args, std::uint32_t element,
                                              WideWalk& walk) {
  for (std::uint32_t query = 0; query < args.num_blocks * kWideQueries; query += kWideQueries) {
    if (is_walking(walk)) {
      wide_half_accumulate_part<kVecs, true>(args, element, query, walk);
    } else {
      wide_half_accumulate_part<kVecs, false>(args, element, query, walk);
    }
  }
}

inline void wide_half_accumulate(const WideAccumulateArgs& args) {
  WideWalk walk = wide_walk(args.next);
  std::uint32_t element = 0;
  for (; element + kHalfLanes < args.dim; element += 2 * kHalfLanes) {
    wide_half_accumulate_strip<2>(args, element, walk);
  }
  if (element < args.dim) wide_half_accumulate_strip<1>(args, element, walk);
}

// --- Rows side by side ---------------------------------------------------------------------------

inline constexpr int kHalfRowQueries = 4;
static_assert(kHalfLanes == static_cast<int>(kHalfRowLanes));

// Lane i = the sum of the lanes of a[i]: kHalfRowSums rounds in 16 bits, the last in f32.
KVARTO_INLINE Vec reduce_each_half(const Half* a) {
  const auto sum = [](__m512i x, __m512i y) __attribute__((always_inline)) {
    return _mm512_castph_si512(_mm512_add_ph(_mm512_castsi512_ph(x), _mm512_castsi512_ph(y)));
  };
  __m512i t[8];
  __m512i u[4];
  __m512i v[2];
  KVARTO_UNROLL(8, i) {
    const __m512i x = _mm512_castph_si512(a[i]);
    const __m512i y = _mm512_castph_si512(a[i + 8]);
    t[i] = sum(_mm512_unpacklo_epi16(x, y), _mm512_unpackhi_epi16(x, y));
  };
  KVARTO_UNROLL(4, i) {
    u[i] = sum(_mm512_unpacklo_epi32(t[i], t[i + 4]), _mm512_unpackhi_epi32(t[i], t[i + 4]));
  };
  KVARTO_UNROLL(2, i) {
    v[i] = sum(_mm512_unpacklo_epi64(u[i], u[i + 2]), _mm512_unpackhi_epi64(u[i], u[i + 2]));
  };
  const __m512i w =
      sum(_mm512_shuffle_i64x2(v[0], v[1], 0x44), _mm512_shuffle_i64x2(v[0], v[1], 0xee));
  // 128 bits each: sums of even a in two parts, then of odd ones. In each the order is that of the
  // bits of i / 2 reversed.
  const __m256i first = _mm512_castsi512_si256(_mm512_shuffle_i64x2(w, w, 0x08));
  const __m256i second = _mm512_castsi512_si256(_mm512_shuffle_i64x2(w, w, 0x0d));
  const Vec all = add(_mm512_cvtph_ps(first), _mm512_cvtph_ps(second));
  return _mm512_permutexvar_ps(
      _mm512_setr_epi32(0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15), all);
}

template <int kNext>
KVARTO_INLINE void wide_half_score_row_block(const RowBlock& block) {
  constexpr int kRows = static_cast<int>(kScoredRows);
  Half acc[kHalfRowQueries * kRows];
  const std::byte* q[kHalfRowQueries];
  KVARTO_UNROLL(kHalfRowQueries, g) { q[g] = block.q + g * block.q_stride_bytes; };
  std::size_t at = 0;
  std::size_t ahead = 0;
  const auto multiply = [&](const Half* keys, bool is_begin) __attribute__((always_inline)) {
    KVARTO_UNROLL(kNext, i) { prefetch(block.soon.rows[i] + ahead); };
    ahead += block.soon.step_bytes;
    prefetch_near(block.near + at);
    KVARTO_UNROLL(kHalfRowQueries, g) {
      const Half b = load_half(q[g] + at);
      KVARTO_UNROLL(kRows, i) {
        Half& sum = acc[g * kRows + i];
        sum = is_begin ? _mm512_mul_ph(keys[i], b) : _mm512_fmadd_ph(keys[i], b, sum);
      };
    };
    at += kHalfVecBytes;
  };
  const std::size_t dim_bytes = std::size_t{block.dim} * kHalfBytes;
  const auto whole = [&](bool is_begin) __attribute__((always_inline)) {
    Half keys[kRows];
    KVARTO_UNROLL(kRows, i) { keys[i] = load_half(block.rows[i] + at); };
    multiply(keys, is_begin);
  };
  const auto rest = [&](bool is_begin) __attribute__((always_inline)) {
    const auto mask =
        static_cast<__mmask32>((std::uint64_t{1} << ((dim_bytes - at) / kHalfBytes)) - 1);
    Half keys[kRows];
    KVARTO_UNROLL(kRows, i) {
      keys[i] = _mm512_castsi512_ph(_mm512_maskz_loadu_epi16(mask, block.rows[i] + at));
    };
    multiply(keys, is_begin);
  };
  if (dim_bytes >= kHalfVecBytes) {
    whole(true);
    while (at + kUnrolledRowSteps * kHalfVecBytes <= dim_bytes) {
      KVARTO_UNROLL(kUnrolledRowSteps, i) {
        static_cast<void>(int{i});
        whole(false);
      };
    }
    while (at + kHalfVecBytes <= dim_bytes) whole(false);
    if (at < dim_bytes) rest(false);
  } else {
    rest(true);
  }
  store_row_scores<kHalfRowQueries>(reduce_each_half(acc), block.scores);
}

inline void wide_half_score_rows(const WideRowScoreArgs& args) {
  each_row_block<kHalfRowQueries, kHalfLanes, kHalfBytes>(
      args, [](const RowBlock& block, int num_next) __attribute__((always_inline)) {
        if (num_next == 0) return wide_half_score_row_block<0>(block);
        num_next == 1 ? wide_half_score_row_block<1>(block) : wide_half_score_row_block<2>(block);
      });
}

inline void wide_half_pack_row_queries(const WideRowPackArgs& args) {
  wide_pack_rows(
      args, [](float* out, std::size_t at, const Vec& x) __attribute__((always_inline)) {
        _mm256_storeu_si256(
            reinterpret_cast<__m256i*>(reinterpret_cast<std::byte*>(out) + at * kHalfBytes),
            to_half<Element::kF16>(x));
      });
}

// Lane i = the largest lane of a[i].
KVARTO_INLINE Vec reduce_max_each(const Vec* a) {
  Vec t[8];
  Vec u[4];
  KVARTO_UNROLL(8, i) {
    t[i] = max(_mm512_unpacklo_ps(a[i], a[i + 8]), _mm512_unpackhi_ps(a[i], a[i + 8]));
  };
  KVARTO_UNROLL(4, i) {
    u[i] = max(_mm512_unpacklo_ps(t[i], t[i + 4]), _mm512_unpackhi_ps(t[i], t[i + 4]));
  };
  const Vec v0 =
      max(_mm512_shuffle_f32x4(u[0], u[1], 0x44), _mm512_shuffle_f32x4(u[0], u[1], 0xee));
  const Vec v1 =
      max(_mm512_shuffle_f32x4(u[2], u[3], 0x44), _mm512_shuffle_f32x4(u[2], u[3], 0xee));
  const Vec w = max(_mm512_shuffle_f32x4(v0, v1, 0x88), _mm512_shuffle_f32x4(v0, v1, 0xdd));
  return _mm512_permutexvar_ps(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), w);
}

// As half_softmax_block, for 16 queries and the vectors [begin, begin + num) of their scores; kNum
// is their number where it is known. The sum is that of the probabilities before they are rounded:
// 64 independent roundings shift it by less than one.
template <int kNum>
KVARTO_INLINE void wide_half_softmax_block(const SoftmaxArgs& args, std::uint32_t query,
                                           std::uint32_t begin, std::uint32_t num) {
  float* scores = args.scores + std::size_t{query} * kChunkRows + begin * kLanes;
  const auto each_vector = [&](const auto& body) __attribute__((always_inline)) {
    if constexpr (kNum > 0) {
      KVARTO_UNROLL(kNum, i) { body(i * kLanes); };
    } else {
      for (std::uint32_t i = 0; i < num; ++i) body(i * kLanes);
    }
  };
  Vec largest_of[kLanes];
  KVARTO_UNROLL(kLanes, i) {
    const float* row = scores + i * kScoreRow;
    Vec largest = set1(kMinusInfinity);
    each_vector([&](std::size_t at)
                    __attribute__((always_inline)) { largest = max(largest, load(row + at)); });
    largest_of[i] = largest;
  };
  const Vec before = load(args.maximum + query);
  const Vec largest = add(reduce_max_each(largest_of), set1(kHalfHeadroom));
  const Vec after = max(largest, before);
  // With nothing visible so far every score is -infinity, and so must stay every difference.
  const Vec lowest = set1(-1e30f);
  const Vec reference = max(after, lowest);
  store(args.maximum + query, after);
  store(args.correction + query, exp2(sub(before, reference)));
  store(args.share + query, exp2(sub(largest, reference)));
  alignas(64) float origins[kLanes];
  store(origins, max(largest, lowest));
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    float* row = scores + std::size_t{i} * kChunkRows;
    const Vec origin = set1(origins[i]);
    Vec sum = zero();
    each_vector([&](std::size_t at) __attribute__((always_inline)) {
      const Vec p = rough_exp2(sub(load(row + at), origin));
      sum = add(sum, p);
      store(row + at, pairs_of(to_half<Element::kF16>(p)));
    });
    float* sums = args.sum + std::size_t{query + i} * kPadFloats;
    store(sums,
          fma(sum, set1(args.share[query + i]), mul(load(sums), set1(args.correction[query + i]))));
  }
}

inline void wide_half_softmax(const SoftmaxArgs& args) {
  const std::uint32_t begin = args.first_row / kLanes * kLanes;
  const std::uint32_t end = (args.end_row + kLanes - 1) / kLanes * kLanes;
  if (args.first_row != begin || args.end_row != end || args.soft_cap > 0 ||
      args.slopes != nullptr || args.query_end != nullptr) {
    for (std::uint32_t query = 0; query < args.num_queries; ++query) {
      shape_scores(args, query, args.scores + std::size_t{query} * kChunkRows, begin, end);
    }
  }
  std::uint32_t query = 0;
  for (; query + kLanes <= args.num_queries; query += kLanes) {
    if (end - begin == kChunkRows) {
      wide_half_softmax_block<kChunkRows / kLanes>(args, query, 0, 0);
    } else {
      wide_half_softmax_block<0>(args, query, begin / kLanes, (end - begin) / kLanes);
    }
  }
  for (; query < args.num_queries; query += kLanes) {
    half_softmax_block<kLanes>(args, query, args.num_queries - query, true);
  }
}

inline void wide_half_pack_queries(const WidePackArgs& args) {
  wide_pack(
      args, [](const Vec& x)
                __attribute__((always_inline)) { return pairs_of(to_half<Element::kF16>(x)); });
}

// Sixteen elements in 16 bits; those beyond `count` are 0.
template <Element E>
KVARTO_INLINE __m256i load_as_half(const std::byte* p, std::uint32_t count) {
  const bool is_whole = count >= kLanes;
  if constexpr (E == Element::kF16) {
    if (is_whole) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1), p);
  } else {
    return to_half<Element::kF16>(is_whole ? load_elements<E>(p)
                                           : load_partial<E>(p, static_cast<int>(count)));
  }
}

template <Element E>
void wide_half_fill_key_tiles(const WideKeysArgs& args) {
  constexpr std::size_t kStepBytes = std::size_t{kTile} * kElementBytes<E>;
  std::byte* to = args.to;
  for (std::uint32_t tile = 0; tile < args.count; tile += 2) {
    const std::byte* first = args.from + args.offsets[tile];
    const std::byte* second = args.from + args.offsets[tile + 1 < args.count ? tile + 1 : tile];
    for (std::uint32_t d = 0; d < args.dim; ++d, to += kHalfVecBytes) {
      const __m256i low = load_as_half<E>(first + d * kStepBytes, kLanes);
      const __m256i high = load_as_half<E>(second + d * kStepBytes, kLanes);
      _mm512_storeu_si512(to, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
    }
  }
}

// Three rounds of shuffles inside 128 bits: element by element of what a vector each held.
KVARTO_INLINE void transpose_eights(__m512i* a) {
  __m512i b[8];
  KVARTO_UNROLL(4, i) {
    b[2 * i] = _mm512_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm512_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
  };
  KVARTO_UNROLL(2, i) {
    a[4 * i] = _mm512_unpacklo_epi32(b[4 * i], b[4 * i + 2]);
    a[4 * i + 1] = _mm512_unpackhi_epi32(b[4 * i], b[4 * i + 2]);
    a[4 * i + 2] = _mm512_unpacklo_epi32(b[4 * i + 1], b[4 * i + 3]);
    a[4 * i + 3] = _mm512_unpackhi_epi32(b[4 * i + 1], b[4 * i + 3]);
  };
  KVARTO_UNROLL(4, i) {
    b[2 * i] = _mm512_unpacklo_epi64(a[i], a[i + 4]);
    b[2 * i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 4]);
  };
  KVARTO_UNROLL(8, i) { a[i] = b[i]; };
}

// 32 rows by 16 elements of 16 bits. A vector takes the same 16 bytes of four rows, eight apart, so
// that no shuffle has to cross 128 bits: insertions from memory need no port of theirs.
KVARTO_INLINE void transpose_halves(const std::byte* const* rows, std::size_t at, __m512i* out) {
  KVARTO_UNROLL(8, i) {
    const auto read = [&](int row, int part) __attribute__((always_inline)) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + at) + part);
    };
    KVARTO_UNROLL(2, part) {
      __m512i x = _mm512_castsi128_si512(read(i, part));
      x = _mm512_inserti32x4(x, read(i + 8, part), 1);
      x = _mm512_inserti32x4(x, read(i + 16, part), 2);
      out[8 * part + i] = _mm512_inserti32x4(x, read(i + 24, part), 3);
    };
  };
  transpose_eights(out);
  transpose_eights(out + 8);
}

// Up to 32 rows into one tile. Whole vectors of f16 are read where they are; others go through a
// small copy.
template <Element E>
KVARTO_INLINE void wide_half_fill_tile(const WideKeysArgs& args, std::uint32_t row, std::byte* to) {
  const std::byte* from[kHalfLanes];
  for (std::uint32_t i = 0; i < kHalfLanes; ++i) {
    const std::uint32_t index = row + i < args.count ? row + i : args.count - 1;
    from[i] = args.from + args.offsets[index];
  }
  __m512i elements[kLanes];
  std::uint32_t d = 0;
  if constexpr (E == Element::kF16) {
    for (; d + kLanes <= args.dim; d += kLanes) {
      transpose_halves(from, d * kHalfBytes, elements);
      KVARTO_UNROLL(kLanes, i) {
        _mm512_storeu_si512(to + std::size_t{d + i} * kHalfVecBytes, elements[i]);
      };
    }
  }
  alignas(64) std::byte copy[kHalfLanes * kLanes * kHalfBytes];
  const std::byte* copied[kHalfLanes];
  for (int i = 0; i < kHalfLanes; ++i) copied[i] = copy + i * kLanes * kHalfBytes;
  for (; d < args.dim; d += kLanes) {
    const std::uint32_t rest = args.dim - d;
    for (std::uint32_t i = 0; i < kHalfLanes; ++i) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(copy) + i,
                         load_as_half<E>(from[i] + d * kElementBytes<E>, rest));
    }
    transpose_halves(copied, 0, elements);
    KVARTO_UNROLL(kLanes, i) {
      if (i < static_cast<int>(rest)) {
        _mm512_storeu_si512(to + std::size_t{d + i} * kHalfVecBytes, elements[i]);
      }
    };
  }
}

template <Element E>
void wide_half_fill_key_rows(const WideKeysArgs& args) {
  std::byte* tile = args.to;
  for (std::uint32_t row = 0; row < args.count; row += kHalfLanes) {
    wide_half_fill_tile<E>(args, row, tile);
    tile += std::size_t{args.dim} * kHalfVecBytes;
  }
}

template <Element E>
void wide_half_fill_values(const WideValuesArgs& args) {
  for (std::uint32_t row = args.first_row; row < args.end_row; ++row) {
    const std::byte* from = args.from + args.offsets[row];
    std::byte* to = args.to + std::size_t{row} * args.stride * kHalfBytes;
    for (std::uint32_t d = 0; d < args.stride; d += kLanes) {
      const std::uint32_t rest = args.dim > d ? args.dim - d : 0;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + d * kHalfBytes),
                          load_as_half<E>(from + d * kElementBytes<E>, rest));
    }
  }
}

template <Element E>
constexpr void set_wide_half_fills(WideKernels& kernels) {
  constexpr int e = static_cast<int>(E);
  kernels.fill_key_tiles[e] = wide_half_fill_key_tiles<E>;
  kernels.fill_key_rows[e] = wide_half_fill_key_rows<E>;
  kernels.fill_values[e] = wide_half_fill_values<E>;
}

constexpr WideKernels make_wide_half_kernels() {
  WideKernels kernels;
  kernels.element_bytes = kHalfBytes;
  kernels.tile_rows = kHalfLanes;
  kernels.pack_queries = wide_half_pack_queries;
  set_wide_half_fills<Element::kF32>(kernels);
  set_wide_half_fills<Element::kF16>(kernels);
  set_wide_half_fills<Element::kBF16>(kernels);
  kernels.score = wide_half_score;
  kernels.pack_row_queries = wide_half_pack_row_queries;
  kernels.score_rows = wide_half_score_rows;
  kernels.softmax = wide_half_softmax;
  kernels.accumulate = wide_half_accumulate;
  kernels.weighted_square = weighted_square;
  return kernels;
}
inline constexpr WideKernels kWideHalfKernels = make_wide_half_kernels();

}  // namespace kvarto::KVARTO_ISA
