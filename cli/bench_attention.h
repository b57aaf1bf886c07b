// kvarto bench decode|prefill over K and V, or over rows that are both.

#pragma once

#include "bench_asked.h"
#include "kvarto/result.h"
#include "output.h"

namespace kvarto::cli {

// Errors: those of attention_cases() and of the measurement; kInvalidArgument for options that it
// does not have.
[[nodiscard]] Status run_attention_bench(const BenchAsked& asked, Output& out);

}  // namespace kvarto::cli
