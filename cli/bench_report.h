// A measurement of kvarto bench decode, prefill or append as JSON and as a row of a table.

#pragma once

#include <nlohmann/json_fwd.hpp>

#include "kvarto/measure.h"
#include "output.h"

namespace kvarto::cli {

[[nodiscard]] nlohmann::ordered_json bench_json(const AttentionBench& bench,
                                                const BenchReport& report);

[[nodiscard]] Table bench_table();
void add_bench_row(const AttentionBench& bench, const BenchReport& report, Table& table);

// Prints a list of documents, or the only one by itself.
void print_documents(const nlohmann::ordered_json& list, Output& out);

}  // namespace kvarto::cli
