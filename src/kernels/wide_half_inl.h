// Many queries against one chunk of rows, in half precision (AVX512-FP16): see wide_kernels.h, and
// half_inl.h for how sums are built.
//
// Totals of chains go through memory: that is where 16 bits become 32 without the shuffle that the
// conversion of a register takes, and the registers are the chains' own.

#pragma once

namespace kvarto::KVARTO_ISA {

inline constexpr int kHalfVecBytes = kHalfLanes * kHalfBytes;

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
  const auto chain = [&](std::uint32_t terms, bool begins_total) __attribute__((always_inline)) {
    Half acc[kSums];
    Half keys[kVecs];
    const auto read_keys = [&] __attribute__((always_inline)) {
      KVARTO_UNROLL(kVecs, v) {
        keys[v] = load_half(k[v]);
        k[v] += kHalfVecBytes;
      };
    };
    read_keys();
    KVARTO_UNROLL(kWideBlock, g) {
      const Half b = broadcast_pair(q + g);
      KVARTO_UNROLL(kVecs, v) { acc[g * kVecs + v] = _mm512_mul_ph(keys[v], b); };
    };
    q += kWideBlock;
    for (std::uint32_t d = 1; d < terms; ++d, q += kWideBlock) {
      if constexpr (kPrefetch) step_walk(walk);
      read_keys();
      KVARTO_UNROLL(kWideBlock, g) {
        const Half b = broadcast_pair(q + g);
        KVARTO_UNROLL(kVecs, v) {
          acc[g * kVecs + v] = _mm512_fmadd_ph(keys[v], b, acc[g * kVecs + v]);
        };
      };
    }
    add_to_totals<kSums>(totals, acc, begins_total);
  };
  for (std::uint32_t d = 0; d < part.dim;) {
    for (std::uint32_t i = 0; i < kTotalChains && d < part.dim; ++i) {
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
  static_assert(kPartDim % (kChainTerms * kTotalChains) == 0);
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
  const auto chain = [&](std::size_t row, std::size_t end) __attribute__((always_inline)) {
    const bool is_first = row == args.first_row;
    Half acc[kSums];
    Half x[kVecs];
    const auto read_values = [&](std::size_t at) __attribute__((always_inline)) {
      const std::byte* values = v + args.offsets[at];
      KVARTO_UNROLL(kVecs, i) { x[i] = load_half(values + i * kHalfVecBytes); };
    };
    read_values(row);
    KVARTO_UNROLL(kWideBlock, g) {
      const Half b = broadcast_pair(p + g * kScoreRow + row);
      KVARTO_UNROLL(kVecs, i) { acc[g * kVecs + i] = _mm512_mul_ph(x[i], b); };
    };
    for (++row; row < end; ++row) {
      if constexpr (kPrefetch) step_walk(walk);
      read_values(row);
      KVARTO_UNROLL(kWideBlock, g) {
        const Half b = broadcast_pair(p + g * kScoreRow + row);
        KVARTO_UNROLL(kVecs, i) {
          acc[g * kVecs + i] = _mm512_fmadd_ph(x[i], b, acc[g * kVecs + i]);
        };
      };
    }
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

// 32 rows by 8 elements of 16 bits: a vector takes the same 16 bytes of four rows, eight apart, so
// that three rounds inside 128 bits put all rows into order.
KVARTO_INLINE void transpose_halves(const std::byte* const* rows, std::size_t at, __m512i* out) {
  const auto piece = [&](int row) __attribute__((always_inline)) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + at));
  };
  __m512i a[8];
  __m512i b[8];
  KVARTO_UNROLL(8, i) {
    __m512i x = _mm512_castsi128_si512(piece(i));
    x = _mm512_inserti32x4(x, piece(i + 8), 1);
    x = _mm512_inserti32x4(x, piece(i + 16), 2);
    a[i] = _mm512_inserti32x4(x, piece(i + 24), 3);
  };
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
    out[2 * i] = _mm512_unpacklo_epi64(a[i], a[i + 4]);
    out[2 * i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 4]);
  };
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
  alignas(64) std::byte copy[kHalfLanes * kLanes * kHalfBytes];
  const std::byte* copied[kHalfLanes];
  for (int i = 0; i < kHalfLanes; ++i) copied[i] = copy + i * kLanes * kHalfBytes;
  constexpr std::uint32_t kStep = 8;
  for (std::uint32_t d = 0; d < args.dim; d += kLanes) {
    const std::uint32_t rest = args.dim - d;
    const bool is_direct = E == Element::kF16 && rest >= kLanes;
    if (!is_direct) {
      for (std::uint32_t i = 0; i < kHalfLanes; ++i) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(copy) + i,
                           load_as_half<E>(from[i] + d * kElementBytes<E>, rest));
      }
    }
    for (std::uint32_t part = 0; part < kLanes && part < rest; part += kStep) {
      __m512i elements[kStep];
      transpose_halves(is_direct ? from : copied, (is_direct ? d + part : part) * kHalfBytes,
                       elements);
      KVARTO_UNROLL(kStep, i) {
        if (part + i < rest) {
          _mm512_storeu_si512(to + std::size_t{d + part + i} * kHalfVecBytes, elements[i]);
        }
      };
    }
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
  kernels.softmax = half_softmax;
  kernels.accumulate = wide_half_accumulate;
  return kernels;
}
inline constexpr WideKernels kWideHalfKernels = make_wide_half_kernels();

}  // namespace kvarto::KVARTO_ISA
