// kvarto bench: one kernel measured against what this machine can do.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench_latent.h"
#include "bench_machine.h"
#include "bench_sparse.h"
#include "command.h"
#include "kvarto/measure.h"
#include "kvarto/measure_append.h"
#include "kvarto/model_spec.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Asked {
  std::string what;
  std::string architecture = "gqa";
  std::optional<std::uint64_t> q_heads, kv_heads, head_dim, v_head_dim, window;
  std::optional<std::uint64_t> top_k, index_heads, index_dim;
  std::vector<std::string> types, key_types, value_types, lengths, layouts, block_sizes, threads;
  std::optional<std::uint64_t> q_len, batch, query_bits;
  LatentAsked latent;
  std::string arithmetic = "auto";
  std::string content = "normal";
  std::string baseline = "none";
  std::string seconds = "1";
  bool is_json = false;
};

Result<std::uint32_t> narrow(const char* name, std::uint64_t value) {
  if (value > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: found {}, expected at most 4294967295", name, value));
  }
  return static_cast<std::uint32_t>(value);
}

// Whether rows are picked by an indexer.
bool is_sparse(const Asked& asked) {
  return asked.architecture.substr(0, asked.architecture.find(':')) == "dsa";
}

// The tail of "gqa:4" as a number; `otherwise` if there is none.
Result<std::uint64_t> argument_of(const std::string& architecture, std::uint64_t otherwise) {
  const std::size_t colon = architecture.find(':');
  if (colon == std::string::npos) return otherwise;
  KVARTO_TRY(const std::uint64_t value, parse_count(architecture.substr(colon + 1)));
  return value;
}

// An option that says what the architecture says already must say the same.
Status check_same(std::string_view option, std::optional<std::uint64_t> found,
                  std::uint64_t expected, const std::string& architecture) {
  if (!found.has_value() || *found == expected) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: found {}, expected {} as in --arch {}",
                                                       option, *found, expected, architecture));
}

// Heads and window of the architecture; defaults are those of llama-3.1-8b.
Status set_architecture(const Asked& asked, AttentionBench* bench) {
  constexpr std::uint64_t kQueryHeads = 32, kKvHeads = 8, kHeadDim = 128, kWindow = 4096;
  const std::string name = asked.architecture.substr(0, asked.architecture.find(':'));
  if (name == "mla") {
    bench->window = asked.window.value_or(0);
    return set_latent(asked.architecture, asked.latent,
                      {asked.q_heads, asked.kv_heads, asked.head_dim, asked.v_head_dim}, bench);
  }
  if (!asked.latent.is_empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--latent-dim, --rope-dim, --nope-dim, --form: found beside --arch {}, "
                            "expected mla",
                            asked.architecture));
  }
  const std::uint64_t q_heads = asked.q_heads.value_or(kQueryHeads);
  std::uint64_t kv_heads = asked.kv_heads.value_or(kKvHeads);
  std::uint64_t window = asked.window.value_or(0);
  if (name == "mha") {
    kv_heads = q_heads;
  } else if (name == "mqa") {
    kv_heads = 1;
  } else if (name == "gqa") {
    KVARTO_TRY(kv_heads, argument_of(asked.architecture, kv_heads));
  } else if (name == "swa") {
    KVARTO_TRY(window, argument_of(asked.architecture, asked.window.value_or(kWindow)));
    KVARTO_CHECK_OK(check_same("--window", asked.window, window, asked.architecture));
  } else {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--arch: found {}, expected mha, mqa, gqa[:G], swa[:w], mla[:L+R] or "
                            "dsa[:K] here",
                            asked.architecture));
  }
  KVARTO_CHECK_OK(check_same("--kv-heads", asked.kv_heads, kv_heads, asked.architecture));
  const std::uint64_t dim = asked.head_dim.value_or(kHeadDim);
  KVARTO_TRY(bench->q_heads, narrow("--q-heads", q_heads));
  KVARTO_TRY(bench->kv_heads, narrow("--kv-heads", kv_heads));
  KVARTO_TRY(bench->qk_dim, narrow("--head-dim", dim));
  KVARTO_TRY(bench->v_dim, narrow("--v-head-dim", asked.v_head_dim.value_or(dim)));
  bench->window = window;
  return {};
}

Status set_words(const Asked& asked, AttentionBench* bench) {
  KVARTO_TRY(bench->arith, parse_arith(asked.arithmetic));
  KVARTO_TRY(bench->query_bits, narrow("--query-bits", asked.query_bits.value_or(16)));
  if (asked.content == "outlier") {
    bench->content = BenchContent::kOutlier;
  } else if (asked.content != "normal") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--data: found {}, expected normal or outlier", asked.content));
  }
  if (asked.baseline == "repeat") {
    bench->baseline = BenchBaseline::kRepeat;
  } else if (asked.baseline != "none") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--baseline: found {}, expected none or repeat", asked.baseline));
  }
  KVARTO_TRY(bench->seconds, parse_real(asked.seconds));
  if (!(bench->seconds > 0) || bench->seconds > 3600) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--seconds: found {}, expected more than 0, at most 3600", asked.seconds));
  }
  return {};
}

// Replaces every bench by one for each word of `words`; `set(word, bench)` applies it.
template <typename Set>
Status multiply(std::vector<AttentionBench>* benches, const std::vector<std::string>& words,
                const Set& set) {
  if (words.empty()) return {};
  std::vector<AttentionBench> all;
  for (const AttentionBench& base : *benches) {
    for (const std::string& word : words) {
      AttentionBench bench = base;
      KVARTO_CHECK_OK(set(word, bench));
      all.push_back(bench);
    }
  }
  *benches = std::move(all);
  return {};
}

Result<Codec> type_of(std::string_view option, const std::string& word) {
  if (word == "auto") return AttentionBench{}.k_codec;
  if (word == "fp8") return Codec::kFp8E4M3;
  std::vector<std::string_view> names = cache_type_names();
  std::erase(names, "fp8_ds_mla");  // a row of latents, not of K and V
  const auto codec = codec_from_name(word);
  if (!codec.has_value() || std::find(names.begin(), names.end(), word) == names.end()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: found {}, expected a cache type: {}",
                                                         option, word, fmt::join(names, " ")));
  }
  return *codec;
}

Status set_type(const std::string& word, AttentionBench& bench) {
  if (bench.latent.has_value()) {
    if (word == "fp8_ds_mla") {
      set_latent_type(word, std::nullopt, bench);
    } else {
      KVARTO_TRY(const Codec codec, type_of("--kv-dtype", word));
      set_latent_type(word, codec, bench);
    }
    return {};
  }
  KVARTO_TRY(bench.k_codec, type_of("--kv-dtype", word));
  bench.v_codec = bench.k_codec;
  return {};
}

Status set_key_type(const std::string& word, AttentionBench& bench) {
  KVARTO_TRY(bench.k_codec, type_of("--cache-type-k", word));
  return {};
}

Status set_value_type(const std::string& word, AttentionBench& bench) {
  KVARTO_TRY(bench.v_codec, type_of("--cache-type-v", word));
  return {};
}

std::string type_words(const AttentionBench& bench) {
  if (bench.latent.has_value()) return latent_type_word(bench);
  const std::string_view k = codec_info(bench.k_codec).name;
  const std::string_view v = codec_info(bench.v_codec).name;
  return k == v ? std::string(k) : fmt::format("{}/{}", k, v);
}

Status set_length(const std::string& word, AttentionBench& bench) {
  KVARTO_TRY(bench.kv_len, parse_count(word));
  return {};
}

Status set_layout(const std::string& word, AttentionBench& bench) {
  for (const Layout layout : {Layout::kGeneric, Layout::kHardware}) {
    if (layout_name(layout) != word) continue;
    bench.layout = layout;
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--layout: found {}, expected generic or hardware", word));
}

Status set_block_size(const std::string& word, AttentionBench& bench) {
  if (word == "contiguous") {
    bench.block_size = 0;
    return {};
  }
  KVARTO_TRY(bench.block_size, parse_count(word));
  constexpr std::uint64_t kMaxBlockSize = std::uint64_t{1} << 30;
  if (bench.block_size == 0 || bench.block_size > kMaxBlockSize) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--block-size: found {}, expected contiguous or 1 to {}", word, kMaxBlockSize));
  }
  return {};
}

Status set_threads(const std::string& word, AttentionBench& bench) {
  KVARTO_TRY(const std::uint64_t threads, parse_count(word));
  KVARTO_TRY(bench.num_threads, narrow("--threads", threads));
  return {};
}

Result<std::vector<AttentionBench>> benches_of(const Asked& asked) {
  AttentionBench base;
  KVARTO_CHECK_OK(set_architecture(asked, &base));
  KVARTO_CHECK_OK(set_words(asked, &base));
  KVARTO_TRY(base.batch, narrow("--batch", asked.batch.value_or(1)));
  std::vector<AttentionBench> benches = {base};
  KVARTO_CHECK_OK(multiply(&benches, asked.types, set_type));
  KVARTO_CHECK_OK(multiply(&benches, asked.key_types, set_key_type));
  KVARTO_CHECK_OK(multiply(&benches, asked.value_types, set_value_type));
  KVARTO_CHECK_OK(multiply(&benches, asked.lengths, set_length));
  KVARTO_CHECK_OK(multiply(&benches, asked.layouts, set_layout));
  KVARTO_CHECK_OK(multiply(&benches, asked.block_sizes, set_block_size));
  KVARTO_CHECK_OK(multiply(&benches, asked.threads, set_threads));
  // Without --q-len a prefill is that of the whole sequence.
  for (AttentionBench& bench : benches) bench.q_len = asked.q_len.value_or(bench.kv_len);
  return benches;
}

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

Json report_json(const AttentionBench& bench, const BenchReport& report) {
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
               {"bandwidth_fraction", report.bandwidth_fraction()},
               {"gflop_per_s", report.gflop_per_s},
               {"machine_gflop_per_s", report.machine_gflop_per_s},
               {"flop_fraction", report.flop_fraction()},
               {"rows_read", report.rows_read},
               {"bytes_read", report.bytes_read},
               {"max_rel_error", report.max_rel_error},
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
  if (bench.block_size == 0) {
    json["block_size"] = "contiguous";
  } else {
    json["block_size"] = bench.block_size;
  }
  add_latent(bench, report, json);
  return json;
}

Table attention_table() {
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
                {"rel. error"}});
}

void add_row(const AttentionBench& bench, const BenchReport& report, Table& table) {
  const bool computes = report.gflop_per_s > 0;
  table.row({fmt::format("{}/{} x {}", bench.q_heads, bench.kv_heads, bench.qk_dim),
             type_words(bench), grouped(bench.kv_len), std::string(report.layout),
             bench.block_size == 0 ? "contiguous" : grouped(bench.block_size),
             grouped(bench.num_threads), std::string(report.isa),
             short_bytes(report.unique_kv_bytes), short_seconds(report.time.median_us * 1e-6),
             fmt::format("{:.1f}", report.gb_per_s),
             report.machine_gb_per_s > 0 ? fmt::format("{:.2f}", report.bandwidth_fraction()) : "-",
             computes ? fmt::format("{:.0f}", report.gflop_per_s) : "",
             computes ? fmt::format("{:.2f}", report.flop_fraction()) : "",
             fmt::format("{:.1e}", report.max_rel_error)});
}

Result<BenchReport> measure(const Asked& asked, const AttentionBench& bench) {
  Result<BenchReport> report = asked.what == "decode"   ? measure_decode(bench)
                               : asked.what == "append" ? measure_append(bench)
                                                        : measure_prefill(bench);
  // An arithmetic that cannot run is the user's wish, not a broken file.
  const bool is_chosen =
      bench.arith == Arith::kF16 || bench.arith == Arith::kInt8 || asked.query_bits.has_value();
  if (!report.has_value() && is_chosen && report.error().code == ErrorCode::kUnsupported) {
    return fail(ErrorCode::kInvalidArgument, report.error().message);
  }
  return report;
}

// Refuses options that what is measured does not have.
Status check_unused(const Asked& asked) {
  const auto refuse = [&](std::string_view option, std::string_view why) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: bench {} {}, expected no value", option, asked.what, why));
  };
  if (asked.what == "decode" && asked.q_len.has_value()) {
    return refuse("--q-len", "has one query token a sequence");
  }
  const bool is_latent = asked.architecture.substr(0, asked.architecture.find(':')) == "mla";
  if (is_latent && (!asked.key_types.empty() || !asked.value_types.empty())) {
    return refuse("--cache-type-k, --cache-type-v", "--arch mla has one row for K and V");
  }
  if (is_latent && asked.baseline != "none") return refuse("--baseline", "--arch mla has none");
  if (is_latent && asked.what == "append") return refuse("--arch mla", "has K and V apart");
  if (asked.what == "append") {
    constexpr std::string_view kNothing = "computes nothing";
    if (asked.arithmetic != "auto") return refuse("--arith", kNothing);
    if (asked.query_bits.has_value()) return refuse("--query-bits", kNothing);
    if (asked.content != "normal") return refuse("--data", kNothing);
    if (asked.baseline != "none") return refuse("--baseline", kNothing);
    if (asked.window.has_value()) return refuse("--window", "keeps every token");
  }
  if (asked.what == "machine") {
    const bool has_shape = asked.q_heads || asked.kv_heads || asked.head_dim || asked.v_head_dim ||
                           asked.window || asked.q_len || asked.batch;
    const bool has_cache = !asked.types.empty() || !asked.key_types.empty() ||
                           !asked.value_types.empty() || !asked.lengths.empty() ||
                           !asked.layouts.empty() || !asked.block_sizes.empty();
    if (has_shape || has_cache) return refuse("options of a cache", "has none");
  }
  return {};
}

// What "of peak" is a share of.
std::string peak_loop_of(const BenchReport& report) {
  if (report.arith != "int8") return fmt::format("{} multiply-add", report.arith);
  if (report.isa == "avx512vnni") return "8-bit dot product";
  return report.isa == "avx2" ? "16-bit multiply-add" : "f32 multiply-add";
}

Result<ExitCode> run_attention(const Asked& asked, Output& out) {
  KVARTO_TRY(const std::vector<AttentionBench> benches, benches_of(asked));
  const bool is_decode = asked.what == "decode";
  const bool is_append = asked.what == "append";
  KVARTO_CHECK_OK(check_unused(asked));
  Json list = Json::array();
  Table table = attention_table();
  std::string ran_arith, ran_form, peak_loop;
  for (AttentionBench bench : benches) {
    if (is_decode) bench.q_len = 1;
    if (!is_decode && bench.latent.has_value() && !bench.latent->form.has_value()) {
      bench.latent->form = LatentForm::kAuto;
    }
    if (is_append) bench.q_len = asked.q_len.value_or(1);
    KVARTO_TRY(const BenchReport report, measure(asked, bench));
    ran_arith = report.query_bits == 0
                    ? std::string(report.arith)
                    : fmt::format("{} with {}-bit queries", report.arith, report.query_bits);
    if (report.form.has_value()) ran_form = fmt::format(", {}", latent_form_name(*report.form));
    peak_loop = peak_loop_of(report);
    list.push_back(report_json(bench, report));
    add_row(bench, report, table);
  }
  if (asked.is_json) {
    out.verbatim((list.size() == 1 ? list.front() : list).dump(2) + "\n");
    return ExitCode::kDone;
  }
  out.heading(is_append ? "append, rows handed in as f32"
                        : fmt::format("{}, arithmetic {}{}", asked.what, ran_arith, ran_form));
  table.print(out);
  if (is_append) {
    out.note(
        "\"of stream\": against the read stream over as many bytes, timed in turn in this "
        "process");
    return ExitCode::kDone;
  }
  out.note(
      fmt::format("\"of stream\" and \"of peak\": against the read stream over as many bytes "
                  "and the {} loop, timed in turn in this process",
                  peak_loop));
  return ExitCode::kDone;
}

Result<ExitCode> run_sparse(const Asked& asked, Output& out) {
  const auto refuse = [&](std::string_view option) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: bench of {} has none, expected no value", option, asked.architecture));
  };
  if (asked.kv_heads || asked.head_dim || asked.v_head_dim) return refuse("--kv-heads, --head-dim");
  if (asked.window) return refuse("--window");
  if (asked.latent.nope_dim || !asked.latent.form.empty()) return refuse("--nope-dim, --form");
  if (!asked.key_types.empty() || !asked.value_types.empty()) return refuse("--cache-type-k, -v");
  if (asked.query_bits) return refuse("--query-bits");
  if (asked.content != "normal") return refuse("--data");
  if (asked.baseline != "none") return refuse("--baseline");
  SparseAsked sparse;
  sparse.architecture = asked.architecture;
  KVARTO_TRY(sparse.shape.q_heads, narrow("--q-heads", asked.q_heads.value_or(0)));
  sparse.shape.kv_heads = 1;  // rows have no heads; the default would have to divide query heads
  KVARTO_TRY(sparse.shape.latent_dim, narrow("--latent-dim", asked.latent.latent_dim.value_or(0)));
  KVARTO_TRY(sparse.shape.rope_dim, narrow("--rope-dim", asked.latent.rope_dim.value_or(0)));
  KVARTO_TRY(sparse.shape.index_heads, narrow("--index-heads", asked.index_heads.value_or(0)));
  KVARTO_TRY(sparse.shape.index_dim, narrow("--index-dim", asked.index_dim.value_or(0)));
  KVARTO_TRY(sparse.shape.top_k, argument_of(asked.architecture, asked.top_k.value_or(0)));
  KVARTO_CHECK_OK(check_same("--top-k", asked.top_k, sparse.shape.top_k, asked.architecture));
  if (asked.what == "prefill") sparse.q_len = asked.q_len.value_or(512);
  sparse.batch = asked.batch.value_or(1);
  sparse.types = asked.types;
  sparse.lengths = asked.lengths;
  sparse.layouts = asked.layouts;
  sparse.block_sizes = asked.block_sizes;
  sparse.threads = asked.threads;
  sparse.arithmetic = asked.arithmetic;
  sparse.seconds = asked.seconds;
  sparse.is_json = asked.is_json;
  KVARTO_CHECK_OK(check_unused(asked));
  KVARTO_CHECK_OK(run_sparse_bench(sparse, out));
  return ExitCode::kDone;
}

// Options that only some architectures have.
Status check_indexer_options(const Asked& asked) {
  const std::pair<std::string_view, bool> options[] = {
      {"--top-k", asked.top_k.has_value()},
      {"--index-heads", asked.index_heads.has_value()},
      {"--index-dim", asked.index_dim.has_value()}};
  for (const auto& [option, is_given] : options) {
    if (!is_given) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: bench {} of {} has none, expected no value", option, asked.what,
                            asked.architecture));
  }
  return {};
}

Result<ExitCode> run(const Asked& asked, Output& out) {
  if (asked.what == "machine") {
    KVARTO_CHECK_OK(check_unused(asked));
    KVARTO_CHECK_OK(run_machine_bench({asked.threads, asked.seconds, asked.is_json}, out));
    return ExitCode::kDone;
  }
  if ((asked.what == "decode" || asked.what == "prefill") && is_sparse(asked)) {
    return run_sparse(asked, out);
  }
  if (asked.what == "decode" || asked.what == "prefill" || asked.what == "append") {
    KVARTO_CHECK_OK(check_indexer_options(asked));
    return run_attention(asked, out);
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("bench: found \"{}\", expected machine, decode, prefill or append", asked.what));
}

Runner declare(OptionSet& options) {
  auto asked = std::make_shared<Asked>();
  options.positional("WHAT", &asked->what, "machine, decode, prefill or append");
  options.section("shape");
  options.text("--arch", "A", &asked->architecture,
               "mha, mqa, gqa[:G], swa[:w], mla[:L+R] or dsa[:K] (default gqa)");
  options.count("--q-heads", 1, &asked->q_heads, "query heads (default 32; mla, dsa: 128)");
  options.count("--kv-heads", 1, &asked->kv_heads, "KV heads (default 8; mha: as query heads)");
  options.count("--head-dim", 1, &asked->head_dim, "elements of a head (default 128)");
  options.count("--v-head-dim", 1, &asked->v_head_dim, "elements of a head of V");
  options.count("--latent-dim", 1, &asked->latent.latent_dim,
                "mla, dsa: elements of a latent (default 512)");
  options.count("--rope-dim", 0, &asked->latent.rope_dim,
                "mla, dsa: rotated elements of a row (default 64)");
  options.count("--nope-dim", 0, &asked->latent.nope_dim,
                "mla: of a head before it is absorbed (default 128; --v-head-dim likewise)");
  options.text("--form", "F", &asked->latent.form,
               "mla: naive, absorbed or auto, with the up-projections (default: prefill auto, "
               "decode absorbed queries)");
  options.count("--window", 1, &asked->window, "tokens of a window");
  options.count("--top-k", 1, &asked->top_k, "dsa: rows that the indexer picks (default 2048)");
  options.count("--index-heads", 1, &asked->index_heads, "dsa: heads of the indexer (default 64)");
  options.count("--index-dim", 1, &asked->index_dim, "dsa: elements of an index key (default 128)");
  options.list("--kv-dtype,--kv-cache-dtype", "T", &asked->types,
               "cache type of K and V (default f16): f32 f16 bf16 fp8 fp8_e5m2 q8_0 q5_1 q5_0 q4_1 "
               "q4_0 iq4_nl int8 int4 nvfp4 mxfp4; mla and dsa: fp8_ds_mla too");
  options.list("-ctk,--cache-type-k", "T", &asked->key_types, "type of K alone");
  options.list("-ctv,--cache-type-v", "T", &asked->value_types, "type of V alone");
  options.list("--kv-len", "N", &asked->lengths,
               "cached tokens, several with commas (default 4096)");
  options.count("--q-len", 1, &asked->q_len,
                "prefill: query tokens (default: all); append: tokens a step (default: 1)");
  options.count("-np,--batch,--parallel,--max-num-seqs", 1, &asked->batch, "sequences (default 1)");
  options.section("how");
  options.list("-t,--threads", "K", &asked->threads, "threads (default 1; machine: 1 and all)");
  options.list("--layout", "L", &asked->layouts, "generic, hardware (default hardware)");
  options.list("--block-size,--page-size", "N", &asked->block_sizes,
               "tokens a block, or contiguous (default 16)");
  options.text("--arith", "A", &asked->arithmetic,
               "auto, f32, f16 or int8 (default auto: int8 for tiles of int8, int4, q8_0 and q4_0 "
               "where integers are faster here, else f32)");
  options.count("--query-bits", 1, &asked->query_bits, "of int8: 16 or 8 (default 16)");
  options.text("--data", "D", &asked->content, "normal or outlier");
  options.text("--baseline", "B", &asked->baseline,
               "repeat: K and V written out for every query head");
  options.text("--seconds", "S", &asked->seconds, "about so long is measured each (default 1)");
  options.flag("--json", &asked->is_json, "one JSON document on standard output");
  return [asked](Output& out) { return run(*asked, out); };
}

}  // namespace

const Command kBenchCommand{"bench", "machine|decode|prefill|append [options]",
                            "one kernel measured against the machine's ceiling", declare};

}  // namespace kvarto::cli
