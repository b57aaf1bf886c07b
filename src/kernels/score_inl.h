// Queries times keys: scores[g][row] = sum_d q[g][d] * k[row][d], in f32 arithmetic.

#pragma once

namespace kvarto::KVARTO_ISA {

inline constexpr int kTile = static_cast<int>(kKeyTileRows);
inline constexpr int kTileVecs = kTile / kLanes;

template <Element E>
inline constexpr int kElementBytes = E == Element::kF32 ? 4 : 2;

// A line of the next rows into L2 (not L1: one core has 16 fill buffers, and bursts block them).
KVARTO_INLINE void prefetch(const std::byte* p) { __builtin_prefetch(p, 0, 2); }
// Into the first-level cache.
KVARTO_INLINE void prefetch_near(const std::byte* p) { __builtin_prefetch(p, 0, 3); }

// Tiles [tile, tile + kTiles) by queries [query, query + kQueries) of a query tile of kStride.
// A key vector holds one element of 16 rows, so no horizontal sum is needed.
template <Element E, int kStride, int kQueries, int kTiles, bool kPrefetch>
KVARTO_INLINE void score_tile_part(const ScoreArgs& args, std::uint32_t tile, std::uint32_t query) {
  constexpr int kVecs = kTiles * kTileVecs;
  constexpr int kStepBytes = kTile * kElementBytes<E>;       // one element of 16 rows
  constexpr int kStepsPerLine = larger(1, 64 / kStepBytes);  // elements a cache line holds
  const std::byte* k[kTiles];
  const std::byte* next[kTiles];
  KVARTO_UNROLL(kTiles, t) {
    k[t] = args.k + args.offsets[tile + t];
    next[t] = kPrefetch ? args.next_k + args.next_offsets[tile + t] : nullptr;
  };
  Vec acc[kQueries * kVecs];
  KVARTO_UNROLL(kQueries * kVecs, i) { acc[i] = zero(); };
  const float* q = args.q + query;
  const auto step = [&](std::size_t offset) __attribute__((always_inline)) {
    Vec keys[kVecs];
    KVARTO_UNROLL(kVecs, i) {
      keys[i] =
          load_elements<E>(k[i / kTileVecs] + offset + (i % kTileVecs) * kLanes * kElementBytes<E>);
    };
    KVARTO_UNROLL(kQueries, g) {
      const Vec b = set1(q[g]);
      KVARTO_UNROLL(kVecs, i) { acc[g * kVecs + i] = fma(keys[i], b, acc[g * kVecs + i]); };
    };
    q += kStride;
  };
  const std::size_t end = std::size_t{args.dim} * kStepBytes;
  std::size_t offset = 0;
  for (; offset + kStepsPerLine * kStepBytes <= end; offset += kStepsPerLine * kStepBytes) {
    if constexpr (kPrefetch) {
      KVARTO_UNROLL(kTiles, t) { prefetch(next[t] + offset); };
    }
    KVARTO_UNROLL(kStepsPerLine, s) { step(offset + s * kStepBytes); };
  }
  for (; offset < end; offset += kStepBytes) step(offset);
  KVARTO_UNROLL(kQueries, g) {
    KVARTO_UNROLL(kVecs, i) {
      store(args.scores + (query + g) * kChunkRows + tile * kTile + i * kLanes, acc[g * kVecs + i]);
    };
  };
}

template <Element E, int kStride, int kQueries, int kTiles>
KVARTO_INLINE void score_tile_queries(const ScoreArgs& args, std::uint32_t tile) {
  if (args.next_k != nullptr) {
    score_tile_part<E, kStride, kQueries, kTiles, true>(args, tile, 0);
  } else {
    score_tile_part<E, kStride, kQueries, kTiles, false>(args, tile, 0);
  }
  for (int query = kQueries; query < kStride; query += kQueries) {
    score_tile_part<E, kStride, kQueries, kTiles, false>(args, tile,
                                                         static_cast<std::uint32_t>(query));
  }
}

template <Element E, int kStride>
void score_tiles(const ScoreArgs& args) {
  constexpr int kQueries = smaller(kStride, larger(1, kAccumulators / kTileVecs));
  constexpr int kTiles = larger(1, smaller(4, kAccumulators / (kQueries * kTileVecs)));
  std::uint32_t tile = 0;
  for (; tile + kTiles <= args.count; tile += kTiles) {
    score_tile_queries<E, kStride, kQueries, kTiles>(args, tile);
  }
  if constexpr (kTiles > 1) {
    for (; tile < args.count; ++tile) score_tile_queries<E, kStride, kQueries, 1>(args, tile);
  }
}

// Rows [row, row + kRows) by queries [query, query + kQueries), kRows * kQueries = kLanes: as many
// sums as a vector has lanes, so that one transposing reduction ends them all.
template <Element E, int kQueries, bool kPrefetch>
KVARTO_INLINE void score_row_part(const ScoreArgs& args, std::uint32_t row, std::uint32_t query) {
  constexpr int kRows = kLanes / kQueries;
  constexpr int kVecBytes = kLanes * kElementBytes<E>;
  constexpr int kVecsPerLine = larger(1, 64 / kVecBytes);
  const std::byte* k[kRows];
  const std::byte* next[kRows];
  // Rows past the end repeat the last one; their sums are not stored.
  KVARTO_UNROLL(kRows, r) {
    const std::uint32_t index = row + r < args.count ? row + r : args.count - 1;
    k[r] = args.k + args.offsets[index];
    next[r] = kPrefetch ? args.next_k + args.next_offsets[index] : nullptr;
  };
  Vec acc[kLanes];
  KVARTO_UNROLL(kLanes, i) { acc[i] = zero(); };
  const std::size_t q_stride = args.q_stride;
  const float* q = args.q + query * q_stride;
  const std::uint32_t whole = args.dim / kLanes;
  const auto multiply = [&](const Vec* keys, std::uint32_t v) __attribute__((always_inline)) {
    KVARTO_UNROLL(kQueries, g) {
      const Vec b = load(q + g * q_stride + v * kLanes);
      KVARTO_UNROLL(kRows, r) { acc[g * kRows + r] = fma(keys[r], b, acc[g * kRows + r]); };
    };
  };
  for (std::uint32_t v = 0; v < whole; ++v) {
    Vec keys[kRows];
    if (kPrefetch && v % kVecsPerLine == 0) {
      KVARTO_UNROLL(kRows, r) { prefetch(next[r] + v * kVecBytes); };
    }
    KVARTO_UNROLL(kRows, r) { keys[r] = load_elements<E>(k[r] + v * kVecBytes); };
    multiply(keys, v);
  }
  if (const int rest = static_cast<int>(args.dim % kLanes); rest != 0) {
    Vec keys[kRows];
    KVARTO_UNROLL(kRows, r) { keys[r] = load_partial<E>(k[r] + whole * kVecBytes, rest); };
    multiply(keys, whole);
  }
  alignas(64) float sums[kLanes];
  store(sums, reduce_each(acc));
  const std::uint32_t num = args.count - row < kRows ? args.count - row : kRows;
  for (std::uint32_t g = 0; g < kQueries; ++g) {
    float* out = args.scores + (query + g) * kChunkRows + row;
    for (std::uint32_t r = 0; r < num; ++r) out[r] = sums[g * kRows + r];
  }
}

template <Element E, int kStride>
void score_rows(const ScoreArgs& args) {
  constexpr int kQueries = smaller(kStride, smaller(kLanes, 8));
  for (std::uint32_t row = 0; row < args.count; row += kLanes / kQueries) {
    if (args.next_k != nullptr) {
      score_row_part<E, kQueries, true>(args, row, 0);
    } else {
      score_row_part<E, kQueries, false>(args, row, 0);
    }
    for (int query = kQueries; query < kStride; query += kQueries) {
      score_row_part<E, kQueries, false>(args, row, static_cast<std::uint32_t>(query));
    }
  }
}

}  // namespace kvarto::KVARTO_ISA
