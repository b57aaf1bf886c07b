// kvarto bench append: rows of new tokens written into the cache.

#pragma once

#include "bench_asked.h"
#include "kvarto/result.h"
#include "output.h"

namespace kvarto::cli {

// Errors: as run_attention_bench().
[[nodiscard]] Status run_append_bench(const BenchAsked& asked, Output& out);

}  // namespace kvarto::cli
