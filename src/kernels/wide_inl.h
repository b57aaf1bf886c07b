// Many queries against one chunk of rows, in f32: see wide_kernels.h.

#pragma once

namespace kvarto::KVARTO_ISA {

// Sums of an inner loop: queries x vectors.
inline constexpr int kWideVecs = kAccumulators >= 8 ? 2 : 1;
inline constexpr int kWideLines = smaller(kWideBlock, kAccumulators / kWideVecs);
static_assert(kWideBlock % kWideLines == 0);
// `dim` elements of kWideLines queries by kVecs vectors of rows; k[i] is the place of vector i.
struct WideScorePart {
  const float* const* k;
  const float* q;
  float* scores;
  std::uint32_t dim;
};
template <int kVecs, bool kIsFirst, bool kPrefetch>
KVARTO_INLINE void wide_score_part(const WideScorePart& part, WideWalk& walk) {
  constexpr int kSums = kWideLines * kVecs;
  Vec acc[kSums];
  KVARTO_UNROLL(kSums, i) {
    const float* scores = part.scores + i / kVecs * kScoreRow + i % kVecs * kLanes;
    acc[i] = kIsFirst ? zero() : load(scores);
  };
  const float* k[kVecs];
  KVARTO_UNROLL(kVecs, i) { k[i] = part.k[i]; };
  const float* q = part.q;
  for (std::size_t at = 0; at < std::size_t{part.dim} * kTile; at += kTile, q += kWideBlock) {
    if constexpr (kPrefetch) step_walk(walk);
    Vec keys[kVecs];
    KVARTO_UNROLL(kVecs, i) { keys[i] = load(k[i] + at); };
    KVARTO_UNROLL(kWideLines, g) {
      const Vec b = set1(q[g]);
      KVARTO_UNROLL(kVecs, i) { acc[g * kVecs + i] = fma(keys[i], b, acc[g * kVecs + i]); };
    };
  }
  KVARTO_UNROLL(kSums, i) {
    store(part.scores + i / kVecs * kScoreRow + i % kVecs * kLanes, acc[i]);
  };
}

template <int kVecs>
KVARTO_INLINE void wide_score_queries(const WideScorePart& part, bool is_first, WideWalk& walk) {
  if (is_walking(walk)) {
    is_first ? wide_score_part<kVecs, true, true>(part, walk)
             : wide_score_part<kVecs, false, true>(part, walk);
  } else {
    is_first ? wide_score_part<kVecs, true, false>(part, walk)
             : wide_score_part<kVecs, false, false>(part, walk);
  }
}

// All queries by the vectors of rows from `vec` on.
template <int kVecs>
KVARTO_INLINE void wide_score_vecs(const WideScoreArgs& args, std::uint32_t vec, WideWalk& walk) {
  constexpr std::uint32_t kPartDim = kWidePartBytes / (kVecs * kLanes * sizeof(float));
  const auto* keys = reinterpret_cast<const float*>(args.keys);
  const std::size_t tile_floats = std::size_t{args.dim} * kTile;
  for (std::uint32_t d = 0; d < args.dim; d += kPartDim) {
    const float* k[kVecs];
    for (std::uint32_t i = 0; i < kVecs; ++i) {
      k[i] = keys + (vec + i) / kTileVecs * tile_floats + std::size_t{d} * kTile +
             (vec + i) % kTileVecs * kLanes;
    }
    WideScorePart part{k, nullptr, nullptr, args.dim - d < kPartDim ? args.dim - d : kPartDim};
    for (std::uint32_t block = 0; block < args.num_blocks; ++block) {
      for (std::uint32_t g = 0; g < kWideQueries; g += kWideLines) {
        const std::size_t query = std::size_t{block} * kWideQueries + g;
        part.q = args.q + (std::size_t{block} * args.dim + d) * kWideQueries + g;
        part.scores = args.scores + query * kChunkRows + vec * kLanes;
        wide_score_queries<kVecs>(part, d == 0, walk);
      }
    }
  }
}

inline void wide_score(const WideScoreArgs& args) {
  WideWalk walk = wide_walk(args.next);
  const std::uint32_t num_vecs = args.num_tiles * kTileVecs;
  std::uint32_t vec = 0;
  for (; vec + kWideVecs <= num_vecs; vec += kWideVecs) {
    wide_score_vecs<kWideVecs>(args, vec, walk);
  }
  if constexpr (kWideVecs > 1) {
    for (; vec < num_vecs; ++vec) wide_score_vecs<1>(args, vec, walk);
  }
}

// kWideLines queries by kWideVecs vectors of elements, all rows.
template <bool kPrefetch>
KVARTO_INLINE void wide_accumulate_part(const WideAccumulateArgs& args, std::uint32_t element,
                                        std::uint32_t query, WideWalk& walk) {
  constexpr int kSums = kWideLines * kWideVecs;
  const std::size_t acc_stride = args.acc_stride;
  float* out = args.acc + query * acc_stride + element;
  Vec acc[kSums];
  KVARTO_UNROLL(kWideLines, g) {
    const Vec c = set1(args.correction[query + g]);
    KVARTO_UNROLL(kWideVecs, i) {
      acc[g * kWideVecs + i] = mul(load(out + g * acc_stride + i * kLanes), c);
    };
  };
  const std::byte* v = args.v + element * sizeof(float);
  const float* p = args.p + std::size_t{query} * kChunkRows;
  for (std::size_t row = args.first_row; row < args.end_row; ++row) {
    if constexpr (kPrefetch) step_walk(walk);
    const auto* values = reinterpret_cast<const float*>(v + args.offsets[row]);
    Vec x[kWideVecs];
    KVARTO_UNROLL(kWideVecs, i) { x[i] = load(values + i * kLanes); };
    KVARTO_UNROLL(kWideLines, g) {
      const Vec b = set1(p[g * kScoreRow + row]);
      KVARTO_UNROLL(kWideVecs, i) {
        acc[g * kWideVecs + i] = fma(x[i], b, acc[g * kWideVecs + i]);
      };
    };
  }
  KVARTO_UNROLL(kSums, i) {
    store(out + i / kWideVecs * acc_stride + i % kWideVecs * kLanes, acc[i]);
  };
}

inline void wide_accumulate(const WideAccumulateArgs& args) {
  constexpr std::uint32_t kStep = kWideVecs * kLanes;
  static_assert(kWideElements % kStep == 0);
  WideWalk walk = wide_walk(args.next);
  const std::uint32_t end = (args.dim + kWideElements - 1) / kWideElements * kWideElements;
  for (std::uint32_t element = 0; element < end; element += kStep) {
    for (std::uint32_t query = 0; query < args.num_blocks * kWideQueries; query += kWideLines) {
      if (is_walking(walk)) {
        wide_accumulate_part<true>(args, element, query, walk);
      } else {
        wide_accumulate_part<false>(args, element, query, walk);
      }
    }
  }
}

inline constexpr int kRowQueries = kLanes / static_cast<int>(kScoredRows);

template <int kNext>
KVARTO_INLINE void wide_score_row_block(const RowBlock& block) {
  constexpr int kRows = static_cast<int>(kScoredRows);
  Vec acc[kLanes];
  KVARTO_UNROLL(kLanes, i) { acc[i] = zero(); };
  const float* rows[kRows];
  KVARTO_UNROLL(kRows, i) { rows[i] = reinterpret_cast<const float*>(block.rows[i]); };
  const float* q[kRowQueries];
  KVARTO_UNROLL(kRowQueries, g) {
    q[g] = reinterpret_cast<const float*>(block.q + g * block.q_stride_bytes);
  };
  std::size_t ahead = 0;
  const auto multiply = [&](const Vec* keys, std::size_t d) __attribute__((always_inline)) {
    KVARTO_UNROLL(kNext, i) { prefetch(block.soon.rows[i] + ahead); };
    ahead += block.soon.step_bytes;
    prefetch_near(block.near + d * sizeof(float));
    KVARTO_UNROLL(kRowQueries, g) {
      const Vec b = load(q[g] + d);
      KVARTO_UNROLL(kRows, i) { acc[g * kRows + i] = fma(keys[i], b, acc[g * kRows + i]); };
    };
  };
  Vec keys[kRows];
  std::size_t d = 0;
  const auto whole = [&] __attribute__((always_inline)) () {
    KVARTO_UNROLL(kRows, i) { keys[i] = load(rows[i] + d); };
    multiply(keys, d);
    d += kLanes;
  };
  while (d + kUnrolledRowSteps * kLanes <= block.dim) {
    KVARTO_UNROLL(kUnrolledRowSteps, i) {
      static_cast<void>(int{i});
      whole();
    };
  }
  while (d + kLanes <= block.dim) whole();
  if (d < block.dim) {
    KVARTO_UNROLL(kRows, i) {
      keys[i] = load_partial<Element::kF32>(reinterpret_cast<const std::byte*>(rows[i] + d),
                                            static_cast<int>(block.dim - d));
    };
    multiply(keys, d);
  }
  store_row_scores<kRowQueries>(reduce_each(acc), block.scores);
}

inline void wide_score_rows(const WideRowScoreArgs& args) {
  each_row_block<kRowQueries, kLanes, sizeof(float)>(
      args, [](const RowBlock& block, int num_next) __attribute__((always_inline)) {
        if (num_next == 0) return wide_score_row_block<0>(block);
        num_next == 1 ? wide_score_row_block<1>(block) : wide_score_row_block<2>(block);
      });
}

inline void wide_pack_row_queries(const WideRowPackArgs& args) {
  wide_pack_rows(
      args, [](float* out, std::size_t at, const Vec& x)
                __attribute__((always_inline)) { store(out + at, x); });
}

inline void wide_pack_queries(const WidePackArgs& args) {
  wide_pack(args, [](const Vec& x) { return x; });
}

template <Element E>
void wide_fill_key_tiles(const WideKeysArgs& args) {
  const std::size_t tile_floats = std::size_t{args.dim} * kTile;
  auto* to = reinterpret_cast<float*>(args.to);
  for (std::uint32_t tile = 0; tile < args.count; ++tile) {
    to_f32<E>(args.from + args.offsets[tile], to + tile * tile_floats, tile_floats);
  }
}

// kLanes rows by kLanes elements; rows past the end repeat the last one.
template <Element E>
KVARTO_INLINE void wide_transpose_square(const WideKeysArgs& args, std::uint32_t row,
                                         std::uint32_t d, float* to) {
  const std::uint32_t rest = args.dim - d;
  Vec square[kLanes];
  const auto read = [&](int i) __attribute__((always_inline)) {
    const std::uint32_t index = row + static_cast<std::uint32_t>(i);
    return args.from + args.offsets[index < args.count ? index : args.count - 1] +
           d * kElementBytes<E>;
  };
  if (rest >= kLanes) {
    KVARTO_UNROLL(kLanes, i) { square[i] = load_elements<E>(read(i)); };
    transpose(square);
    KVARTO_UNROLL(kLanes, i) { store(to + i * kTile, square[i]); };
    return;
  }
  for (int i = 0; i < kLanes; ++i) square[i] = load_partial<E>(read(i), static_cast<int>(rest));
  transpose(square);
  for (std::uint32_t i = 0; i < rest; ++i) store(to + i * kTile, square[i]);
}

template <Element E>
void wide_fill_key_rows(const WideKeysArgs& args) {
  auto* tile = reinterpret_cast<float*>(args.to);
  for (std::uint32_t row = 0; row < args.count; row += kTile, tile += args.dim * kTile) {
    for (std::uint32_t d = 0; d < args.dim; d += kLanes) {
      for (std::uint32_t part = 0; part < kTile; part += kLanes) {
        wide_transpose_square<E>(args, row + part, d, tile + std::size_t{d} * kTile + part);
      }
    }
  }
}

template <Element E>
void wide_fill_values(const WideValuesArgs& args) {
  for (std::uint32_t row = args.first_row; row < args.end_row; ++row) {
    auto* to = reinterpret_cast<float*>(args.to) + std::size_t{row} * args.stride;
    to_f32<E>(args.from + args.offsets[row], to, args.dim);
    for (std::uint32_t d = args.dim; d < args.stride; ++d) to[d] = 0;
  }
}

template <Element E>
constexpr void set_wide_fills(WideKernels& kernels) {
  constexpr int e = static_cast<int>(E);
  kernels.fill_key_tiles[e] = wide_fill_key_tiles<E>;
  kernels.fill_key_rows[e] = wide_fill_key_rows<E>;
  kernels.fill_values[e] = wide_fill_values<E>;
}

constexpr WideKernels make_wide_kernels() {
  WideKernels kernels;
  kernels.element_bytes = sizeof(float);
  kernels.tile_rows = kTile;
  kernels.pack_queries = wide_pack_queries;
  set_wide_fills<Element::kF32>(kernels);
  set_wide_fills<Element::kF16>(kernels);
  set_wide_fills<Element::kBF16>(kernels);
  kernels.score = wide_score;
  kernels.pack_row_queries = wide_pack_row_queries;
  kernels.score_rows = wide_score_rows;
  kernels.softmax = softmax;
  kernels.accumulate = wide_accumulate;
  kernels.weighted_square = weighted_square;
  return kernels;
}
inline constexpr WideKernels kWideKernels = make_wide_kernels();

}  // namespace kvarto::KVARTO_ISA
