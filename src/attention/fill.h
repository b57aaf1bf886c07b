// Rows in formats that no kernel reads directly: decoded into a slab of f32 rows, one chunk and
// head at a time.

#pragma once

#include "attention/head_pass.h"

namespace kvarto {

// Floats of a slab that holds the keys or the values of one chunk.
[[nodiscard]] std::size_t slab_floats(const PassShape& shape);

// Keys that are decoded and scored before the next: they stay in the first-level cache.
inline constexpr std::uint32_t kFilledKeys = 16;

// `args` with keys of its chunk in args.slab, kFilledKeys from row `first` on or as many as are
// left, and the place of their scores. The same rows of the next chunk are prefetched on the way.
// Requires: shape.k_fill.
[[nodiscard]] PassArgs with_filled_keys(const PassShape& shape, const PassArgs& args,
                                        std::uint32_t first);
// `args` with all keys of its chunk, which are tiles of codes, as f32 tiles in args.slab.
[[nodiscard]] PassArgs with_filled_key_tiles(const PassShape& shape, const PassArgs& args);
// `args` with all values of its chunk in args.slab, likewise. Keys and values use the same slab,
// one after the other. Requires: shape.v_fill, or values in tiles of codes.
[[nodiscard]] PassArgs with_filled_values(const PassShape& shape, const PassArgs& args);

}  // namespace kvarto
