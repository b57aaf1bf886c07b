// What one decode step and one prefill read and compute.

#pragma once

#include <cstdint>

#include "kvarto/plan.h"

namespace kvarto {

// Requires: types in force, request.context resolved. Errors: kInvalidArgument for an overflow.
[[nodiscard]] Result<StepCost> step_cost(const ModelSpec& model, const PlanRequest& request);

// Rows that the queries of a causal prefill of `tokens` tokens see, summed over its positions: the
// sum over t = 1 .. tokens of rows_read(stream, t), in closed form; a predictor's ratio does not
// apply. Exact below 2^53. Access::skip_tokens and align_rows count only for streams that neither
// die by chunks nor are constant.
[[nodiscard]] double prefill_rows_seen(const Stream& stream, std::uint64_t tokens);

// Whether a stream holds values alone: its rows are accumulated with the scores of another's.
[[nodiscard]] bool is_value_stream(const Stream& stream);

}  // namespace kvarto
