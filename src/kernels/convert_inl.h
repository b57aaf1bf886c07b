// Element formats, tiles and queries: the kernels that move and convert.

#pragma once

namespace kvarto::KVARTO_ISA {

template <Element E>
void to_f32(const std::byte* from, float* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(to + i, load_elements<E>(from + i * kElementBytes<E>));
  }
  for (; i < count; ++i) to[i] = first_lane(load_partial<E>(from + i * kElementBytes<E>, 1));
}

template <Element E>
void from_f32(const float* from, std::byte* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_elements<E>(to + i * kElementBytes<E>, load(from + i));
  }
  for (; i < count; ++i) store_partial<E>(to + i * kElementBytes<E>, set1(from[i]), 1);
}

template <Element E>
void from_f32_tile(const float* from, std::byte* to, std::size_t count) {
  constexpr std::size_t kStepBytes = std::size_t{kTile} * kElementBytes<E>;
  const auto scatter = [&](const float* source, std::size_t first, std::size_t num) {
    alignas(64) std::byte converted[kLanes * kElementBytes<E>];
    store_elements<E>(converted, load(source));
    for (std::size_t j = 0; j < num; ++j) {
      __builtin_memcpy(to + (first + j) * kStepBytes, converted + j * kElementBytes<E>,
                       kElementBytes<E>);
    }
  };
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) scatter(from + i, i, kLanes);
  if (i < count) {
    alignas(64) float rest[kLanes] = {};
    for (std::size_t j = 0; i + j < count; ++j) rest[j] = from[i + j];
    scatter(rest, i, count - i);
  }
}

inline void pack_query_tile(const PackQueriesArgs& args) {
  const std::uint32_t tile = args.tile;
  for (std::uint32_t g = 0; g < tile; ++g) {
    float* out = args.out + g;
    if (g >= args.num_queries) {
      for (std::uint32_t d = 0; d < args.dim; ++d) out[d * tile] = 0;
      continue;
    }
    const float* row = args.rows[g];
    for (std::uint32_t d = 0; d < args.dim; ++d) out[d * tile] = row[d] * args.scale;
  }
}

inline void pack_query_rows(const PackQueriesArgs& args) {
  for (std::uint32_t g = 0; g < args.tile; ++g) {
    float* out = args.out + std::size_t{g} * args.stride;
    const bool is_used = g < args.num_queries;
    for (std::uint32_t d = 0; d < args.stride; ++d) {
      out[d] = is_used && d < args.dim ? args.rows[g][d] * args.scale : 0;
    }
  }
}

inline void transpose_tile(const TransposeArgs& args) {
  std::uint32_t d = 0;
  for (std::uint32_t first = 0; first < kKeyTileRows; first += kLanes) {
    for (d = 0; d + kLanes <= args.dim; d += kLanes) {
      Vec block[kLanes];
      KVARTO_UNROLL(kLanes, i) {
        block[i] = first + i < args.num_rows ? load(args.rows[first + i] + d) : zero();
      };
      transpose(block);
      KVARTO_UNROLL(kLanes, i) {
        store(args.tile + std::size_t{d + static_cast<std::uint32_t>(i)} * kKeyTileRows + first,
              block[i]);
      };
    }
  }
  for (; d < args.dim; ++d) {
    for (std::uint32_t r = 0; r < kKeyTileRows; ++r) {
      args.tile[std::size_t{d} * kKeyTileRows + r] = r < args.num_rows ? args.rows[r][d] : 0;
    }
  }
}

}  // namespace kvarto::KVARTO_ISA
