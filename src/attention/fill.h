// Rows in formats that no kernel reads directly: decoded into a slab of f32 rows, one chunk and
// head at a time.

#pragma once

#include "attention/head_pass.h"

namespace kvarto {

// Floats of a slab that holds the keys or the values of one chunk.
[[nodiscard]] std::size_t slab_floats(const PassShape& shape);

// `args` with the keys, or the values, of its chunk in args.slab; `next` rows are prefetched on the
// way. Both use the same slab: values follow when the keys are scored.
// Requires: shape.k_fill, or shape.v_fill.
[[nodiscard]] PassArgs with_filled_keys(const PassShape& shape, const PassArgs& args);
[[nodiscard]] PassArgs with_filled_values(const PassShape& shape, const PassArgs& args);

}  // namespace kvarto
