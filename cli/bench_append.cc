#include "bench_append.h"

#include <nlohmann/json.hpp>

#include "bench_cases.h"
#include "bench_report.h"
#include "bench_words.h"
#include "kvarto/measure_append.h"

namespace kvarto::cli {
namespace {

Status check_unused(const BenchAsked& asked) {
  constexpr std::string_view kNothing = "bench append computes nothing";
  const std::string architecture = asked.architecture_name();
  if (architecture == "mla") return refuse_option("--arch mla", "bench append has K and V apart");
  if (asked.arithmetic != "auto") return refuse_option("--arith", kNothing);
  if (asked.query_bits.has_value()) return refuse_option("--query-bits", kNothing);
  if (asked.content != "normal") return refuse_option("--data", kNothing);
  if (asked.baseline != "none") return refuse_option("--baseline", kNothing);
  if (asked.window.has_value()) {
    return refuse_option("--window", "bench append keeps every token");
  }
  return {};
}

}  // namespace

Status run_append_bench(const BenchAsked& asked, Output& out) {
  KVARTO_TRY(const std::vector<AttentionBench> benches, attention_cases(asked));
  KVARTO_CHECK_OK(check_unused(asked));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  Table table = bench_table();
  for (AttentionBench bench : benches) {
    bench.q_len = asked.q_len.value_or(1);
    KVARTO_TRY(const BenchReport report, measure_append(bench));
    list.push_back(bench_json(bench, report));
    add_bench_row(bench, report, table);
  }
  if (asked.is_json) {
    print_documents(list, out);
    return {};
  }
  out.heading("append, rows handed in as f32");
  table.print(out);
  out.note(
      "\"of stream\": against the read stream over the rows of all steps, at least 1 MiB, timed in "
      "this process");
  return {};
}

}  // namespace kvarto::cli
