#include "bench_attention.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench_cases.h"
#include "bench_report.h"
#include "bench_words.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

using Json = nlohmann::ordered_json;

Status check_unused(const BenchAsked& asked) {
  const auto refuse = [&](std::string_view option, std::string_view why) {
    return refuse_option(option, fmt::format("bench {} {}", asked.what, why));
  };
  if (asked.what == "decode" && asked.q_len.has_value()) {
    return refuse("--q-len", "has one query token a sequence");
  }
  if (asked.architecture_name() != "mla") return {};
  if (!asked.key_types.empty() || !asked.value_types.empty()) {
    return refuse("--cache-type-k, --cache-type-v", "--arch mla has one row for K and V");
  }
  if (asked.baseline != "none") return refuse("--baseline", "--arch mla has none");
  return {};
}

// What "of peak" is a share of.
std::string peak_loop_of(const BenchReport& report) {
  if (report.arith != "int8") return fmt::format("{} multiply-add", report.arith);
  if (report.isa == "avx512vnni") return "8-bit dot product";
  return report.isa == "avx2" ? "16-bit multiply-add" : "f32 multiply-add";
}

// What both forms of latent attention cost by the rule, and which one ran.
std::string costs_of(const AttentionBench& bench, const BenchReport& report) {
  const auto cost_of = [](const LatentCost& cost) {
    return fmt::format("{} and {} moved, {:.3g}", short_flop(cost.flop),
                       short_bytes(static_cast<std::uint64_t>(cost.bytes)), cost.total());
  };
  const bool is_chosen = bench.latent->form == LatentForm::kAuto;
  return fmt::format("{} tokens: naive costs {}; absorbed {}; {} ran, {}", grouped(bench.kv_len),
                     cost_of(report.naive), cost_of(report.absorbed),
                     latent_form_name(*report.form),
                     is_chosen ? "the cheaper one" : "as asked for");
}

void add_notes(const BenchReport& last, const std::vector<std::string>& costs, Output& out) {
  for (const std::string& line : costs) out.note(line);
  if (!costs.empty()) out.note("cost: FLOP + 12 x bytes (docs/mla.md)");
  out.note(
      fmt::format("\"of stream\" and \"of peak\": against the read stream over as many bytes, at "
                  "least 1 MiB, and the {} loop, timed in turn in this process",
                  peak_loop_of(last)));
  out.note(
      "\"at most\": the bound of \"rel. error\" that follows from the arithmetic that ran, for "
      "these queries and rows (docs/attention.md)");
}

}  // namespace

Status run_attention_bench(const BenchAsked& asked, Output& out) {
  KVARTO_TRY(const std::vector<AttentionBench> benches, attention_cases(asked));
  KVARTO_CHECK_OK(check_unused(asked));
  const bool is_decode = asked.what == "decode";
  Json list = Json::array();
  Table table = bench_table();
  std::vector<std::string> costs;
  BenchReport report;
  for (AttentionBench bench : benches) {
    if (is_decode) bench.q_len = 1;
    if (!is_decode && bench.latent.has_value() && !bench.latent->form.has_value()) {
      bench.latent->form = LatentForm::kAuto;
    }
    KVARTO_TRY(report, is_decode ? measure_decode(bench) : measure_prefill(bench));
    list.push_back(bench_json(bench, report));
    add_bench_row(bench, report, table);
    if (report.form.has_value()) costs.push_back(costs_of(bench, report));
  }
  if (asked.is_json) {
    print_documents(list, out);
    return {};
  }
  const std::string arithmetic =
      report.query_bits == 0
          ? std::string(report.arith)
          : fmt::format("{} with {}-bit queries", report.arith, report.query_bits);
  const std::string form =
      report.form.has_value() ? fmt::format(", {}", latent_form_name(*report.form)) : "";
  out.heading(fmt::format("{}, arithmetic {}{}", asked.what, arithmetic, form));
  table.print(out);
  add_notes(report, costs, out);
  return {};
}

}  // namespace kvarto::cli
