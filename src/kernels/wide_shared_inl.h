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

// Sixteen elements of all queries of a block at a time, transposed in registers. kAsWord turns an
// element into the word that kernels read.
template <typename AsWord>
KVARTO_INLINE void wide_pack(const WidePackArgs& args, const AsWord& as_word) {
  const Vec scale = set1(args.scale);
  const std::uint32_t num_blocks = (args.num_queries + kWideQueries - 1) / kWideQueries;
  for (std::uint32_t block = 0; block < num_blocks; ++block) {
    const float* const* rows = args.rows + std::size_t{block} * kWideQueries;
    const std::uint32_t left = args.num_queries - block * kWideQueries;
    float* out = args.out + std::size_t{block} * args.dim * kWideQueries;
    for (std::uint32_t d = 0; d < args.dim; d += kLanes) {
      const std::uint32_t rest = args.dim - d;
      alignas(64) float words[kWideQueries][kLanes];
      for (std::uint32_t g = 0; g < kWideQueries; ++g) {
        Vec x = zero();
        if (g < left) {
          const auto* from = reinterpret_cast<const std::byte*>(rows[g] + d);
          x = rest >= kLanes ? load_elements<Element::kF32>(from)
                             : load_partial<Element::kF32>(from, static_cast<int>(rest));
        }
        store(words[g], as_word(mul(x, scale)));
      }
      for (std::uint32_t i = 0; i < kLanes && i < rest; ++i) {
        for (std::uint32_t g = 0; g < kWideQueries; ++g) {
          out[std::size_t{d + i} * kWideQueries + g] = words[g][i];
        }
      }
    }
  }
}

}  // namespace kvarto::KVARTO_ISA
