// Rows that are K and V at once, for many queries: a chunk of them is brought into the compute
// format once, where it is not stored so, and then multiplied with all queries
// (kernels/wide_kernels.h).
//
// Such rows cannot lie in tiles: they are values too, and top-k picks them one by one.

#pragma once

#include "attention/head_pass.h"

namespace kvarto {

// Query heads of one KV head from which on these kernels pay.
inline constexpr std::uint32_t kMinSlabQueries = 16;

// Whether V is the first elements of K, in the same rows.
[[nodiscard]] bool has_shared_rows(const CacheView& view);

// Sets shape.slab for shared rows where that pays or where other kernels cannot read the rows.
// `num_group_heads`: query heads of one KV head.
void choose_slab(const CacheView& view, std::uint32_t num_group_heads, PassShape& shape);

// Floats of scratch for one chunk of such rows.
[[nodiscard]] std::size_t row_slab_floats(const PassShape& shape);

void pack_row_queries(const PassShape& shape, std::span<const float* const> rows, float* out);

// run_pass() over such rows. Requires: shape.slab.is_used.
void run_row_pass(const PassShape& shape, std::uint32_t num_padded, const PassArgs& args,
                  const HeadState& state);

}  // namespace kvarto
