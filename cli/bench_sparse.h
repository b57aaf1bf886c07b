// kvarto bench decode|prefill of attention whose rows an indexer picks.

#pragma once

#include "bench_asked.h"
#include "kvarto/result.h"
#include "output.h"

namespace kvarto::cli {

// Errors: kInvalidArgument for words that are none, options that it does not have and shapes that
// cannot be measured; those of measure_sparse().
[[nodiscard]] Status run_sparse_bench(const BenchAsked& asked, Output& out);

}  // namespace kvarto::cli
