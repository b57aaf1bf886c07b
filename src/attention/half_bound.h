// Whether arithmetic in 16 bits is exact enough for a call: the bound that AttentionOptions states.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/call_check.h"
#include "kvarto/attention.h"
#include "kvarto/result.h"

namespace kvarto {

// Roundings that the product of element d goes through: of the query, of its chain of products from
// there on, and of the additions of that chain and those after it.
[[nodiscard]] std::vector<float> half_roundings(std::uint32_t dim);
// The same where lanes run along the elements of rows.
[[nodiscard]] std::vector<float> half_row_roundings(std::uint32_t dim);

// Checks all queries of a call. Errors: kUnsupported, with the bound, its limit and what it is due
// to.
[[nodiscard]] Status check_half_bound(const CallShape& call, const PassShape& shape);

}  // namespace kvarto
