#include "bench_sparse.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "architecture_options.h"
#include "bench_report.h"
#include "bench_words.h"
#include "kvarto/measure_sparse.h"
#include "kvarto/plan.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

using Json = nlohmann::ordered_json;

// One measurement and the words that it was asked for with.
struct Case {
  SparseBench bench;
  std::string type = "f16";
  std::string index_type;  // "" = the release's own
};

Status set_layout(const std::string& word, Case& each) {
  KVARTO_TRY(each.bench.layout, parse_layout(word));
  return {};
}

Status set_block_size(const std::string& word, Case& each) {
  KVARTO_TRY(each.bench.block_size, parse_block_size(word));
  return {};
}

Status set_length(const std::string& word, Case& each) {
  KVARTO_TRY(each.bench.kv_len, parse_count(word));
  return {};
}

Status set_threads(const std::string& word, Case& each) {
  KVARTO_TRY(each.bench.num_threads, parse_threads(word));
  return {};
}

Status check_unused(const BenchAsked& asked) {
  const auto refuse = [&](std::string_view option) {
    return refuse_option(option, fmt::format("bench of {} has none", asked.architecture));
  };
  if (asked.what == "decode" && asked.q_len) {
    return refuse_option("--q-len", "bench decode has one query token a sequence");
  }
  if (asked.kv_heads || asked.head_dim || asked.v_head_dim) return refuse("--kv-heads, --head-dim");
  if (asked.window) return refuse("--window");
  if (asked.latent.nope_dim || !asked.latent.form.empty()) return refuse("--nope-dim, --form");
  if (!asked.key_types.empty() || !asked.value_types.empty()) {
    return refuse("--cache-type-k, --cache-type-v");
  }
  if (asked.query_bits) return refuse("--query-bits");
  if (asked.baseline != "none") return refuse("--baseline");
  return check_stated_numbers({asked.architecture}, {{"top-k", asked.top_k}});
}

Result<ModelSpec> model_of(const BenchAsked& asked) {
  WhatIfDefaults shape;
  shape.kv_heads = 1;  // rows have no heads; the default would have to divide query heads
  KVARTO_CHECK_OK(narrow("--q-heads", asked.q_heads, &shape.q_heads));
  KVARTO_CHECK_OK(narrow("--latent-dim", asked.latent.latent_dim, &shape.latent_dim));
  KVARTO_CHECK_OK(narrow("--rope-dim", asked.latent.rope_dim, &shape.rope_dim));
  KVARTO_CHECK_OK(narrow("--index-heads", asked.index_heads, &shape.index_heads));
  KVARTO_CHECK_OK(narrow("--index-dim", asked.index_dim, &shape.index_dim));
  shape.top_k = asked.top_k.value_or(0);
  return geometry_model(asked.architecture, shape, 1);
}

// Query tokens where --q-len is not given: a prefill of a whole long sequence would take minutes.
std::uint64_t default_q_len(const BenchAsked& asked, std::uint64_t kv_len) {
  constexpr std::uint64_t kMaxTokens = 512;
  return asked.what == "prefill" ? std::min(kMaxTokens, kv_len) : 1;
}

Result<std::vector<Case>> cases_of(const BenchAsked& asked) {
  Case base;
  KVARTO_TRY(base.bench.model, model_of(asked));
  KVARTO_TRY(base.bench.arith, parse_arith(asked.arithmetic));
  KVARTO_TRY(base.bench.batch, narrow("--batch", asked.batch.value_or(1)));
  KVARTO_TRY(base.bench.content, parse_content(asked.content));
  KVARTO_TRY(base.bench.seconds, parse_seconds(asked.seconds));
  std::vector<Case> cases = {base};
  const auto set_text = [](std::string Case::*text) {
    return [text](const std::string& word, Case& each) -> Status {
      each.*text = word;
      return {};
    };
  };
  KVARTO_CHECK_OK(multiply(cases, asked.types, set_text(&Case::type)));
  KVARTO_CHECK_OK(multiply(cases, asked.index_types, set_text(&Case::index_type)));
  KVARTO_CHECK_OK(multiply(cases, asked.lengths, set_length));
  KVARTO_CHECK_OK(multiply(cases, asked.layouts, set_layout));
  KVARTO_CHECK_OK(multiply(cases, asked.block_sizes, set_block_size));
  KVARTO_CHECK_OK(multiply(cases, asked.threads, set_threads));
  for (Case& each : cases) {
    each.bench.q_len = asked.q_len.value_or(default_q_len(asked, each.bench.kv_len));
    KVARTO_TRY(each.bench.model,
               with_types(each.bench.model,
                          {.key = each.type, .value = each.type, .index = each.index_type}));
  }
  return cases;
}

Json reads_json(const SparseReads& measured, const SparseReads& planned) {
  return {{"rows", measured.rows},
          {"bytes", measured.bytes},
          {"rows_read", measured.rows_read},
          {"bytes_read", measured.bytes_read},
          {"planned_rows", planned.rows},
          {"planned_rows_read", planned.rows_read},
          {"planned_bytes", planned.bytes_read},
          {"planned_flop", planned.flop}};
}

// The type of index keys in force.
std::string_view index_type_of(const Case& each) {
  for (const Stream& stream : each.bench.model.groups.front().streams) {
    if (stream.purpose == Purpose::kIndexer) return codec_info(stream.fields.front().codec).name;
  }
  return "none";
}

double speedup(const SparseReport& report) {
  return report.dense_time.runs == 0 ? 0 : report.dense_time.median_us / report.time.median_us;
}

Json report_json(const Case& each, const SparseReport& report) {
  const QueryShape& query = each.bench.model.groups.front().query;
  const double seconds = report.time.median_us * 1e-6;
  const double gb_per_s = static_cast<double>(report.unique_kv_bytes) / seconds / 1e9;
  const double gflop_per_s = report.planned_flop() / seconds / 1e9;
  Json json = {{"schema", "kvarto.bench/1"},
               {"kernel", report.kernel},
               {"isa", report.isa},
               {"layout", report.layout},
               {"arith", report.arith},
               {"index_isa", report.index_isa},
               {"index_arith", report.index_arith},
               {"unique_kv_bytes", report.unique_kv_bytes},
               {"median_us", report.time.median_us},
               {"p99_us", report.time.p99_us},
               {"stddev_us", report.time.stddev_us},
               {"runs", report.time.runs},
               {"index_us", report.index_time.median_us},
               {"attention_us", report.attention_time.median_us},
               {"dense_us", nullptr},
               {"speedup_over_dense", nullptr},
               {"floor_us", report.floor_us()},
               {"gb_per_s", gb_per_s},
               {"machine_gb_per_s", report.machine_gb_per_s},
               {"stream_bytes", report.stream_bytes},
               {"bandwidth_fraction", gb_per_s / report.machine_gb_per_s},
               {"gflop_per_s", gflop_per_s},
               {"machine_gflop_per_s", report.machine_gflop_per_s},
               {"flop_fraction", gflop_per_s / report.machine_gflop_per_s},
               {"rows_read", report.index_reads.rows_read + report.reads.rows_read},
               {"bytes_read", report.index_reads.bytes_read + report.reads.bytes_read},
               {"planned_bytes", report.planned_bytes()},
               {"planned_flop", report.planned_flop()},
               {"index_reads", reads_json(report.index_reads, report.planned_index)},
               {"row_reads", reads_json(report.reads, report.planned)},
               {"same_rows", report.same_rows},
               {"max_rel_error", report.max_rel_error},
               {"error_bound", report.error_bound},
               {"q_heads", query.q_heads},
               {"index_heads", query.index_heads},
               {"index_dim", query.index_dim},
               {"kv_dtype", each.type},
               {"index_type", index_type_of(each)},
               {"kv_len", each.bench.kv_len},
               {"q_len", each.bench.q_len},
               {"batch", each.bench.batch},
               {"threads", each.bench.num_threads}};
  if (each.bench.block_size == 0) {
    json["block_size"] = "contiguous";
  } else {
    json["block_size"] = each.bench.block_size;
  }
  if (report.dense_time.runs != 0) {
    json["dense_us"] = report.dense_time.median_us;
    json["speedup_over_dense"] = speedup(report);
  }
  return json;
}

Table sparse_table() {
  return Table({{"heads", Table::Align::kLeft},
                {"type", Table::Align::kLeft},
                {"kv_len"},
                {"q_len"},
                {"threads"},
                {"planned bytes"},
                {"planned FLOP"},
                {"index"},
                {"attention"},
                {"both"},
                {"of floor"},
                {"dense"},
                {"dense / both"},
                {"same rows"},
                {"rel. error"},
                {"at most"}});
}

void add_row(const Case& each, const SparseReport& report, Table& table) {
  const QueryShape& query = each.bench.model.groups.front().query;
  const auto time = [](const Timing& timing) { return short_seconds(timing.median_us * 1e-6); };
  const bool has_dense = report.dense_time.runs != 0;
  table.row({fmt::format("{} + {} x {}", query.q_heads, query.index_heads, query.index_dim),
             each.type, grouped(each.bench.kv_len), grouped(each.bench.q_len),
             grouped(each.bench.num_threads), short_bytes(report.planned_bytes()),
             short_flop(report.planned_flop()), time(report.index_time),
             time(report.attention_time), time(report.time),
             fmt::format("{:.2f}", report.time.median_us / report.floor_us()),
             has_dense ? time(report.dense_time) : "-",
             has_dense ? fmt::format("{:.1f}", speedup(report)) : "-",
             fmt::format("{:.4f}", report.same_rows), fmt::format("{:.1e}", report.max_rel_error),
             fmt::format("{:.1e}", report.error_bound)});
}

Table reads_table() {
  return Table({{"stream", Table::Align::kLeft},
                {"kv_len"},
                {"rows needed, planned"},
                {"measured"},
                {"rows read, planned"},
                {"measured"},
                {"bytes read, planned"},
                {"measured"}});
}

void add_reads(const char* name, const Case& each, const SparseReads& measured,
               const SparseReads& planned, Table& table) {
  table.row({name, grouped(each.bench.kv_len), grouped(planned.rows), grouped(measured.rows),
             grouped(planned.rows_read), grouped(measured.rows_read), grouped(planned.bytes_read),
             grouped(measured.bytes_read)});
}

}  // namespace

Status run_sparse_bench(const BenchAsked& asked, Output& out) {
  KVARTO_CHECK_OK(check_unused(asked));
  KVARTO_TRY(const std::vector<Case> cases, cases_of(asked));
  Json list = Json::array();
  Table times = sparse_table();
  Table reads = reads_table();
  std::string ran;
  for (const Case& each : cases) {
    KVARTO_TRY(const SparseReport report, measure_sparse(each.bench));
    ran = fmt::format("index scores {} ({}), attention {} ({})", report.index_arith,
                      report.index_isa, report.arith, report.isa);
    list.push_back(report_json(each, report));
    add_row(each, report, times);
    add_reads("index_key", each, report.index_reads, report.planned_index, reads);
    add_reads("latent", each, report.reads, report.planned, reads);
  }
  if (asked.is_json) {
    print_documents(list, out);
    return {};
  }
  out.heading(fmt::format("{}: {}", asked.architecture, ran));
  times.print(out);
  out.line();
  reads.print(out);
  out.note(
      "\"of floor\": against every byte once at the read stream or the plan's FLOP at the "
      "multiply-add loop, whichever takes longer, timed in turn in this process");
  const bool is_prefill = std::any_of(cases.begin(), cases.end(),
                                      [](const Case& each) { return each.bench.q_len > 1; });
  if (is_prefill) {
    out.note(
        "rows needed: for each query token anew; 16 neighbouring tokens share index keys read");
  }
  return {};
}

}  // namespace kvarto::cli
