// The measurements of attention over K and V, or over rows that are both, that the options of
// kvarto bench ask for.

#pragma once

#include <string>
#include <vector>

#include "bench_asked.h"
#include "kvarto/measure.h"
#include "kvarto/result.h"

namespace kvarto::cli {

// One for each combination of types, lengths, layouts, blocks and threads; q_len is that of a
// prefill, the whole sequence where nothing is said. Errors: kInvalidArgument for words that are
// none, and for options that contradict each other.
[[nodiscard]] Result<std::vector<AttentionBench>> attention_cases(const BenchAsked& asked);

// The word of its type, "k/v" where they differ.
[[nodiscard]] std::string type_words(const AttentionBench& bench);

}  // namespace kvarto::cli
