#include "bench_sparse.h"

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "kvarto/measure_sparse.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

using Json = nlohmann::ordered_json;

// One measurement and the words that it was asked for with.
struct Case {
  SparseBench bench;
  std::string type = "f16";
};

Result<std::uint32_t> narrow(const char* name, std::uint64_t value) {
  if (value > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: found {}, expected at most 4294967295", name, value));
  }
  return static_cast<std::uint32_t>(value);
}

using Setter = std::function<Status(const std::string& word, Case&)>;

// Replaces every case by one for each word.
Status multiply(std::vector<Case>& cases, const std::vector<std::string>& words,
                const Setter& set) {
  if (words.empty()) return {};
  std::vector<Case> all;
  for (const Case& base : cases) {
    for (const std::string& word : words) {
      all.push_back(base);
      KVARTO_CHECK_OK(set(word, all.back()));
    }
  }
  cases = std::move(all);
  return {};
}

Status set_layout(const std::string& word, Case& each) {
  for (const Layout layout : {Layout::kGeneric, Layout::kHardware}) {
    if (layout_name(layout) != word) continue;
    each.bench.layout = layout;
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--layout: found {}, expected generic or hardware", word));
}

Status set_block_size(const std::string& word, Case& each) {
  KVARTO_TRY(each.bench.block_size, parse_count(word));
  constexpr std::uint64_t kMaxBlockSize = std::uint64_t{1} << 30;
  if (each.bench.block_size != 0 && each.bench.block_size <= kMaxBlockSize) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--block-size: found {}, expected 1 to {}", word, kMaxBlockSize));
}

Result<std::vector<Case>> cases_of(const SparseAsked& asked) {
  Case base;
  KVARTO_TRY(base.bench.model, geometry_model(asked.architecture, asked.shape, 1));
  KVARTO_TRY(base.bench.arith, parse_arith(asked.arithmetic));
  KVARTO_TRY(base.bench.batch, narrow("--batch", asked.batch));
  KVARTO_TRY(base.bench.seconds, parse_real(asked.seconds));
  if (!(base.bench.seconds > 0) || base.bench.seconds > 3600) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--seconds: found {}, expected more than 0, at most 3600", asked.seconds));
  }
  std::vector<Case> cases = {base};
  KVARTO_CHECK_OK(multiply(cases, asked.types, [](const std::string& word, Case& each) -> Status {
    each.type = word;
    return {};
  }));
  KVARTO_CHECK_OK(multiply(cases, asked.lengths, [](const std::string& word, Case& each) -> Status {
    KVARTO_TRY(each.bench.kv_len, parse_count(word));
    return {};
  }));
  KVARTO_CHECK_OK(multiply(cases, asked.layouts, set_layout));
  KVARTO_CHECK_OK(multiply(cases, asked.block_sizes, set_block_size));
  KVARTO_CHECK_OK(multiply(cases, asked.threads, [](const std::string& word, Case& each) -> Status {
    KVARTO_TRY(const std::uint64_t threads, parse_count(word));
    KVARTO_TRY(each.bench.num_threads, narrow("--threads", threads));
    return {};
  }));
  for (Case& each : cases) {
    each.bench.q_len = asked.q_len.value_or(1);
    KVARTO_TRY(each.bench.model,
               with_types(each.bench.model, {.key = each.type, .value = each.type, .index = ""}));
  }
  return cases;
}

Json reads_json(const SparseReads& measured, const SparseReads& planned) {
  return {{"rows", measured.rows},           {"bytes", measured.bytes},
          {"rows_read", measured.rows_read}, {"bytes_read", measured.bytes_read},
          {"planned_rows", planned.rows},    {"planned_bytes", planned.bytes},
          {"planned_flop", planned.flop}};
}

double speedup(const SparseReport& report) {
  return report.dense_time.runs == 0 ? 0 : report.dense_time.median_us / report.time.median_us;
}

Json report_json(const Case& each, const SparseReport& report) {
  const QueryShape& query = each.bench.model.groups.front().query;
  const double seconds = report.time.median_us * 1e-6;
  const double gb_per_s = static_cast<double>(report.planned_bytes()) / seconds / 1e9;
  const double gflop_per_s = report.planned_flop() / seconds / 1e9;
  Json json = {{"schema", "kvarto.bench/1"},
               {"kernel", report.kernel},
               {"isa", report.isa},
               {"layout", report.layout},
               {"arith", report.arith},
               {"index_isa", report.index_isa},
               {"index_arith", report.index_arith},
               {"unique_kv_bytes", report.planned_bytes()},
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
               {"q_heads", query.q_heads},
               {"index_heads", query.index_heads},
               {"index_dim", query.index_dim},
               {"kv_dtype", each.type},
               {"kv_len", each.bench.kv_len},
               {"q_len", each.bench.q_len},
               {"batch", each.bench.batch},
               {"threads", each.bench.num_threads},
               {"block_size", each.bench.block_size}};
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
                {"rel. error"}});
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
             fmt::format("{:.4f}", report.same_rows), fmt::format("{:.1e}", report.max_rel_error)});
}

Table reads_table() {
  return Table({{"stream", Table::Align::kLeft},
                {"kv_len"},
                {"planned rows"},
                {"rows"},
                {"rows read"},
                {"planned bytes"},
                {"bytes"},
                {"bytes read"}});
}

void add_reads(const char* name, const Case& each, const SparseReads& measured,
               const SparseReads& planned, Table& table) {
  table.row({name, grouped(each.bench.kv_len), grouped(planned.rows), grouped(measured.rows),
             grouped(measured.rows_read), grouped(planned.bytes), grouped(measured.bytes),
             grouped(measured.bytes_read)});
}

}  // namespace

Status run_sparse_bench(const SparseAsked& asked, Output& out) {
  KVARTO_TRY(const std::vector<Case> cases, cases_of(asked));
  Json list = Json::array();
  Table times = sparse_table();
  Table reads = reads_table();
  std::string ran;
  for (const Case& each : cases) {
    const Result<SparseReport> report = measure_sparse(each.bench);
    if (!report.has_value()) {
      // An arithmetic or type that cannot run is the user's wish, not a broken file.
      const bool is_wish = report.error().code == ErrorCode::kUnsupported;
      return fail(is_wish ? ErrorCode::kInvalidArgument : report.error().code,
                  report.error().message);
    }
    ran = fmt::format("index scores {} ({}), attention {} ({})", report->index_arith,
                      report->index_isa, report->arith, report->isa);
    list.push_back(report_json(each, *report));
    add_row(each, *report, times);
    add_reads("index_key", each, report->index_reads, report->planned_index, reads);
    add_reads("latent", each, report->reads, report->planned, reads);
  }
  if (asked.is_json) {
    out.verbatim((list.size() == 1 ? list.front() : list).dump(2) + "\n");
    return {};
  }
  out.heading(fmt::format("{}: {}", asked.architecture, ran));
  times.print(out);
  out.line();
  reads.print(out);
  out.note(
      "\"of floor\": against the plan's bytes at the read stream or its FLOP at the multiply-add "
      "loop, whichever takes longer, timed in turn in this process");
  return {};
}

}  // namespace kvarto::cli
