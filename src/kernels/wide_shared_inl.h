// What the kernels for many queries have in common in every compute format.

#pragma once

namespace kvarto::KVARTO_ISA {

inline constexpr int kWideBlock = static_cast<int>(kWideQueries);
inline constexpr int kScoreRow = static_cast<int>(kChunkRows);
// Keys and values that all queries read before the next ones: a third of a first-level cache.
inline constexpr std::uint32_t kWidePartBytes = 16 * 1024;

// The cache lines of the next rows, in the order of memory.
struct WideWalk {
  const std::byte* base;
  const std::uint64_t* row;
  const std::uint64_t* end;
  std::uint32_t line;
  std::uint32_t row_bytes;
};
KVARTO_INLINE WideWalk wide_walk(const WidePrefetch& next) {
  const std::uint32_t num_rows = next.base == nullptr ? 0 : next.num_rows;
  return {next.base, next.offsets, next.offsets + num_rows, 0, next.row_bytes};
}
KVARTO_INLINE bool is_walking(const WideWalk& walk) { return walk.row != walk.end; }
// One line; nothing at the end.
KVARTO_INLINE void step_walk(WideWalk& walk) {
  if (!is_walking(walk)) return;
  prefetch(walk.base + *walk.row + walk.line);
  walk.line += 64;
  if (walk.line >= walk.row_bytes) {
    walk.line = 0;
    ++walk.row;
  }
}

// kLanes elements of `row` from `d` on; beyond `dim` and without a row 0.
KVARTO_INLINE Vec wide_query_part(const float* row, std::uint32_t d, std::uint32_t dim) {
  if (row == nullptr) return zero();
  if (d + kLanes <= dim) return load(row + d);
  return load_partial<Element::kF32>(reinterpret_cast<const std::byte*>(row + d),
                                     static_cast<int>(dim - d));
}

// kLanes queries by kLanes elements at a time, transposed in registers. `as_word` turns elements
// into the words that kernels read.
template <typename AsWord>
KVARTO_INLINE void wide_pack(const WidePackArgs& args, const AsWord& as_word) {
  constexpr std::uint32_t kPart = smaller(kLanes, kWideBlock);  // words of one block in a vector
  const Vec scale = set1(args.scale);
  const std::uint32_t num_padded =
      (args.num_queries + kWideQueries - 1) / kWideQueries * kWideQueries;
  for (std::uint32_t query = 0; query < num_padded; query += kLanes) {
    const float* rows[kLanes];
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      rows[i] = query + i < args.num_queries ? args.rows[query + i] : nullptr;
    }
    for (std::uint32_t d = 0; d < args.dim; d += kLanes) {
      Vec words[kLanes];
      KVARTO_UNROLL(kLanes, i) {
        words[i] = as_word(mul(wide_query_part(rows[i], d, args.dim), scale));
      };
      transpose(words);
      alignas(64) float square[kLanes][kLanes];  // [element][query]
      KVARTO_UNROLL(kLanes, i) { store(square[i], words[i]); };
      for (std::uint32_t part = query; part < query + kLanes && part < num_padded; part += kPart) {
        const std::uint32_t block = part / kWideQueries;
        float* out =
            args.out + (std::size_t{block} * args.dim + d) * kWideQueries + part % kWideQueries;
        for (std::uint32_t i = 0; i < kLanes && d + i < args.dim; ++i) {
          __builtin_memcpy(out + std::size_t{i} * kWideQueries, &square[i][part - query],
                           kPart * sizeof(float));
        }
      }
    }
  }
}

// `store_at(out, place, elements)` writes kLanes elements of a row at `place`, counted in elements.
template <typename StoreAt>
KVARTO_INLINE void wide_pack_rows(const WideRowPackArgs& args, const StoreAt& store_at) {
  const Vec scale = set1(args.scale);
  const std::uint32_t num_padded =
      (args.num_queries + kWideQueries - 1) / kWideQueries * kWideQueries;
  for (std::uint32_t query = 0; query < num_padded; ++query) {
    const float* row = query < args.num_queries ? args.rows[query] : nullptr;
    for (std::uint32_t d = 0; d < args.stride; d += kLanes) {
      const Vec x = d < args.dim ? wide_query_part(row, d, args.dim) : zero();
      store_at(args.out, std::size_t{query} * args.stride + d, mul(x, scale));
    }
  }
}

inline float weighted_square(const float* weights, const float* q, std::uint32_t dim) {
  Vec sum = zero();
  for (std::uint32_t d = 0; d < dim; d += kLanes) {
    const Vec x = wide_query_part(q, d, dim);
    sum = fma(mul(x, x), wide_query_part(weights, d, dim), sum);
  }
  alignas(64) float lanes[kLanes];
  store(lanes, sum);
  float total = 0;
  for (const float lane : lanes) total += lane;
  return total;
}

}  // namespace kvarto::KVARTO_ISA
