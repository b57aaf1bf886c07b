#include "bench_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench_cases.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

using Json = nlohmann::ordered_json;

// What latent rows have beside K and V.
void add_latent(const AttentionBench& bench, const BenchReport& report, Json& json) {
  if (!bench.latent.has_value()) return;
  json["architecture"] = "mla";
  json["latent_dim"] = bench.v_dim;
  json["rope_dim"] = bench.qk_dim - bench.v_dim;
  json["form"] = latent_form_name(report.form.value_or(LatentForm::kAbsorbed));
  json["has_projections"] = report.form.has_value();
  if (!report.form.has_value()) return;
  json["nope_dim"] = bench.latent->nope_dim;
  json["v_head_dim"] = bench.latent->v_dim;
  for (const auto& [name, cost] :
       {std::pair{"naive", report.naive}, std::pair{"absorbed", report.absorbed}}) {
    json["cost"][name] = {{"flop", cost.flop}, {"bytes", cost.bytes}, {"total", cost.total()}};
  }
}

}  // namespace

Json bench_json(const AttentionBench& bench, const BenchReport& report) {
  Json json = {{"schema", "kvarto.bench/1"},
               {"kernel", report.kernel},
               {"isa", report.isa},
               {"layout", report.layout},
               {"arith", report.arith},
               {"query_bits", report.query_bits},
               {"unique_kv_bytes", report.unique_kv_bytes},
               {"median_us", report.time.median_us},
               {"p99_us", report.time.p99_us},
               {"stddev_us", report.time.stddev_us},
               {"runs", report.time.runs},
               {"gb_per_s", report.gb_per_s},
               {"machine_gb_per_s", report.machine_gb_per_s},
               {"stream_bytes", report.stream_bytes},
               {"bandwidth_fraction", report.bandwidth_fraction()},
               {"gflop_per_s", report.gflop_per_s},
               {"machine_gflop_per_s", report.machine_gflop_per_s},
               {"flop_fraction", report.flop_fraction()},
               {"rows_read", report.rows_read},
               {"bytes_read", report.bytes_read},
               {"max_rel_error", report.max_rel_error},
               {"error_bound", nullptr},
               {"heads_checked", report.heads_checked},
               {"runs_total", report.time.runs_total},
               {"huge_pages", report.has_huge_pages},
               {"q_heads", bench.q_heads},
               {"kv_heads", bench.kv_heads},
               {"head_dim", bench.qk_dim},
               {"v_head_dim", bench.v_dim},
               {"kv_dtype", type_words(bench)},
               {"cache_type_k", codec_info(bench.k_codec).name},
               {"cache_type_v", codec_info(bench.v_codec).name},
               {"kv_len", bench.kv_len},
               {"q_len", bench.q_len},
               {"batch", bench.batch},
               {"threads", bench.num_threads},
               {"window", bench.window},
               {"baseline", bench.baseline == BenchBaseline::kRepeat ? "repeat" : "none"}};
  if (report.error_bound.has_value()) json["error_bound"] = *report.error_bound;
  if (bench.block_size == 0) {
    json["block_size"] = "contiguous";
  } else {
    json["block_size"] = bench.block_size;
  }
  add_latent(bench, report, json);
  return json;
}

Table bench_table() {
  return Table({{"heads", Table::Align::kLeft},
                {"type", Table::Align::kLeft},
                {"kv_len"},
                {"layout", Table::Align::kLeft},
                {"block"},
                {"threads"},
                {"isa", Table::Align::kLeft},
                {"cache"},
                {"median"},
                {"GB/s"},
                {"of stream"},
                {"GFLOP/s"},
                {"of peak"},
                {"rel. error"},
                {"at most"}});
}

void add_bench_row(const AttentionBench& bench, const BenchReport& report, Table& table) {
  const bool computes = report.gflop_per_s > 0;
  table.row({fmt::format("{}/{} x {}", bench.q_heads, bench.kv_heads, bench.qk_dim),
             type_words(bench), grouped(bench.kv_len), std::string(report.layout),
             bench.block_size == 0 ? "contiguous" : grouped(bench.block_size),
             grouped(bench.num_threads), std::string(report.isa),
             short_bytes(report.unique_kv_bytes), short_seconds(report.time.median_us * 1e-6),
             fmt::format("{:.1f}", report.gb_per_s),
             fmt::format("{:.2f}", report.bandwidth_fraction()),
             computes ? fmt::format("{:.0f}", report.gflop_per_s) : "",
             computes ? fmt::format("{:.2f}", report.flop_fraction()) : "",
             fmt::format("{:.1e}", report.max_rel_error),
             report.error_bound.has_value() ? fmt::format("{:.1e}", *report.error_bound) : "-"});
}

void print_documents(const Json& list, Output& out) {
  out.verbatim((list.size() == 1 ? list.front() : list).dump(2) + "\n");
}

}  // namespace kvarto::cli
