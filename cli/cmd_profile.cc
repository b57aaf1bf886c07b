// kvarto profile: runs the cache for real and reports what it did, beside the plan.

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "command.h"
#include "model_options.h"
#include "numbers.h"
#include "profile_report.h"
#include "progress.h"
#include "stop_signal.h"

namespace kvarto::cli {
namespace {

struct Asked {
  ModelOptions model;
  std::optional<std::uint64_t> context, num_sequences, steps, block_size, micro_batch, threads;
  std::optional<std::uint64_t> query_bits;
  std::string layout = "hardware";
  std::string arithmetic = "auto";
  bool has_all_layers = false;
  std::vector<std::string> what_if;
  bool shows_planned = false;
  std::string trace;
  bool is_brief = false;
  bool is_json = false;
};

// One architecture of the report: the model as it is, or one of --what-if.
struct Candidate {
  std::string name;  // "" = as the layer groups say
  ModelSpec model;   // without types
};

Result<std::vector<Candidate>> candidates_of(const Asked& asked, const ModelSpec& model,
                                             const ProfileRequest& request, ProfileReport* report) {
  if (asked.what_if.empty()) return std::vector<Candidate>{{"", model}};
  KVARTO_TRY(const WhatIfDefaults defaults, what_if_defaults(asked.model));
  PlanRequest plan;
  plan.context = request.context;
  plan.num_sequences = request.num_sequences;
  KVARTO_TRY(const std::vector<WhatIf> rows, what_if(model, plan, asked.what_if, defaults));
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    KVARTO_TRY(ModelSpec other, with_architecture(model, asked.what_if[i], defaults));
    candidates.push_back({rows[i].architecture, std::move(other)});
    for (const std::string& note : rows[i].notes) report->notes.push_back(note);
  }
  return candidates;
}

// The types asked for: --kv-cache-dtype may list several.
std::vector<CacheTypes> types_of(const ModelOptions& asked) {
  std::vector<CacheTypes> all;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = asked.both_types.find(',', begin);
    ModelOptions one = asked;
    one.both_types = asked.both_types.substr(begin, end == std::string::npos ? end : end - begin);
    all.push_back(cache_types(one));
  }
  return all;
}

// A model of one layer of every group that caches something, as the profile runs it.
ModelSpec one_layer_each(ModelSpec model) {
  std::erase_if(model.groups, [](const LayerGroup& group) { return group.streams.empty(); });
  for (LayerGroup& group : model.groups) group.layers.resize(1);
  model.draft_groups.clear();
  return model;
}

Result<PlannedRow> planned_row(const Candidate& candidate, const ProfileRequest& request) {
  PlanRequest plan_request;
  plan_request.context = request.context;
  plan_request.num_sequences = request.num_sequences;
  plan_request.types = request.types;
  const ModelSpec model = request.has_all_layers ? request.model : one_layer_each(request.model);
  plan_request.layer_types = types_within(model, request.layer_types);
  KVARTO_TRY(const Plan planned, plan(model, plan_request, {"ideal"}));
  PlannedRow row;
  row.architecture = candidate.name.empty()
                         ? fmt::format("{}", fmt::join(architecture_names(model), "+"))
                         : candidate.name;
  row.type = request.types.key == request.types.value
                 ? request.types.key
                 : request.types.key + "/" + request.types.value;
  row.total_bytes = planned.engines.front().bytes;
  row.read_bytes_per_step = planned.step.read_bytes;
  return row;
}

Status check_all(const ModelSpec& model) {
  for (const LayerGroup& group : model.groups) {
    if (!group.streams.empty()) KVARTO_CHECK_OK(check_runnable(model, group));
  }
  return {};
}

// Refuses what cannot run before anything does.
Status check_runnable(const std::vector<Candidate>& candidates, const ModelOptions& asked) {
  KVARTO_TRY(const std::vector<LayerTypes> by_layer, layer_types(asked));
  for (const Candidate& candidate : candidates) {
    for (const CacheTypes& types : types_of(asked)) {
      KVARTO_TRY(const ModelSpec model, with_types(candidate.model, types, by_layer));
      const Status runnable = check_all(model);
      if (runnable.has_value()) continue;
      Error error = runnable.error();
      if (!candidate.name.empty()) error.message = candidate.name + ": " + error.message;
      error.message += "; --planned shows such architectures as planned";
      return tl::unexpected<Error>(std::move(error));
    }
  }
  return {};
}

// Runs one architecture with one type, or adds it to the planned ones.
Status run_one(const Candidate& candidate, ProfileRequest request, ProfileReport* report) {
  KVARTO_TRY(request.model, with_types(candidate.model, request.types, request.layer_types));
  if (const Status runnable = check_all(request.model); !runnable.has_value()) {
    KVARTO_TRY(PlannedRow row, planned_row(candidate, request));
    row.reason = runnable.error().message;
    report->planned.push_back(std::move(row));
    return {};
  }
  KVARTO_TRY(std::vector<ProfileRun> runs, profile(request));
  for (ProfileRun& run : runs) {
    if (!candidate.name.empty() && runs.size() == 1) run.architecture = candidate.name;
    report->is_partial |= run.is_partial;
    report->runs.push_back(std::move(run));
  }
  return {};
}

Result<ProfileRequest> request_of(const Asked& asked, const ModelSpec& model) {
  ProfileRequest request;
  const std::uint64_t own = model.max_context == 0 ? kDefaultContextTokens : model.max_context;
  request.context = asked.context.value_or(std::min(own, kDefaultContextTokens));
  request.num_sequences = asked.num_sequences.value_or(1);
  request.num_steps = asked.steps.value_or(default_steps(request.context));
  request.block_size = asked.block_size.value_or(kDefaultBlockSize);
  request.micro_batch = asked.micro_batch.value_or(kDefaultMicroBatch);
  KVARTO_TRY(request.num_threads, narrow("--threads", asked.threads.value_or(1)));
  KVARTO_TRY(request.arith, parse_arith(asked.arithmetic));
  const std::uint64_t query_bits = asked.query_bits.value_or(16);
  if (query_bits != 16 && query_bits != 8) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--query-bits: found {}, expected 16 or 8", query_bits));
  }
  request.query_bits = static_cast<std::uint32_t>(query_bits);
  request.has_all_layers = asked.has_all_layers;
  KVARTO_TRY(request.layer_types, layer_types(asked.model));
  request.is_stopping = &StopSignal::is_stopping();
  KVARTO_TRY(request.layout, parse_layout(asked.layout));
  return request;
}

// Asked before the run, whose result would be lost otherwise. An existing file keeps its bytes.
Status check_trace(const std::string& path) {
  if (path.empty()) return {};
  if (!std::ofstream(path, std::ios::binary | std::ios::app)) {
    return fail(ErrorCode::kIo, fmt::format("--trace: {}: the file cannot be written", path));
  }
  return {};
}

Status write_trace(const std::string& path, const ProfileReport& report) {
  std::ofstream file(path, std::ios::binary);
  file << chrome_trace(report);
  file.close();
  if (file.fail()) {
    return fail(ErrorCode::kIo, fmt::format("{}: the trace could not be written", path));
  }
  return {};
}

// Runs every architecture with every type, until one fails or a stop is asked for.
Status run_all(const Asked& asked, const std::vector<Candidate>& candidates,
               ProfileRequest& request, ProfileReport* report) {
  Progress progress;
  request.on_progress = [&progress](const ProfileProgress& now) {
    progress.update(now.phase, now.done, now.all);
  };
  for (const Candidate& candidate : candidates) {
    for (const CacheTypes& types : types_of(asked.model)) {
      if (StopSignal::is_stopping()) {
        report->is_partial = true;
        report->notes.push_back(
            fmt::format("{} {}: stopped before it ran", candidate.name, types.key));
        continue;
      }
      request.types = types;
      progress.start(candidate.name.empty() ? report->model : candidate.name);
      KVARTO_CHECK_OK(run_one(candidate, request, report));
    }
  }
  report->is_partial |= StopSignal::is_stopping().load();
  return {};
}

Result<ExitCode> run(const Asked& asked, Output& out) {
  ProfileReport report;
  KVARTO_TRY(const ModelSpec model, open_asked(asked.model, asked.what_if));
  if (asked.what_if.empty()) KVARTO_CHECK_OK(check_latent_options(asked.model, model));
  KVARTO_TRY(ProfileRequest request, request_of(asked, model));
  report.model = model.name;
  report.model_layers = model.num_layers;
  report.context = request.context;
  report.is_default_context = !asked.context.has_value();
  report.num_sequences = request.num_sequences;
  report.num_steps = request.num_steps;
  report.is_brief = asked.is_brief;
  report.notes = model.notes;
  if (model.max_context != 0 && request.context > model.max_context) {
    report.notes.push_back(fmt::format("{} tokens are above the model's maximum of {}",
                                       request.context, model.max_context));
  }
  KVARTO_TRY(const std::vector<Candidate> candidates,
             candidates_of(asked, model, request, &report));
  if (!asked.shows_planned) {
    KVARTO_CHECK_OK(check_runnable(candidates, asked.model));
  }
  KVARTO_CHECK_OK(check_trace(asked.trace));
  const Status ran = [&] {
    const StopSignal signal;
    return run_all(asked, candidates, request, &report);
  }();
  if (!ran.has_value()) {
    if (report.runs.empty()) return tl::unexpected<Error>(ran.error());
    report.is_partial = true;
    report.notes.push_back("the rest was not run: " + ran.error().message);
  }
  asked.is_json ? print_profile_json(report, out) : print_profile_text(report, out);
  if (!asked.trace.empty()) {
    // Written before the trace, whose failure must not take the report with it.
    KVARTO_CHECK_OK(out.write());
    KVARTO_CHECK_OK(write_trace(asked.trace, report));
  }
  if (StopSignal::is_stopping()) return ExitCode::kStopped;
  const bool is_met = std::all_of(report.runs.begin(), report.runs.end(),
                                  [](const ProfileRun& each) { return each.is_all_met(); });
  return is_met && !report.is_partial ? ExitCode::kDone : ExitCode::kFinding;
}

Runner declare(OptionSet& options) {
  auto asked = std::make_shared<Asked>();
  declare_model(options, &asked->model, TypeUse::kWritten);
  options.section("load");
  options.count("-c,--ctx-size,--max-model-len,--context-length", 1, &asked->context,
                "tokens of a sequence at the end (default: the smaller of the model's maximum and "
                "32768)");
  options.count("-np,--parallel,--max-num-seqs,--batch", 1, &asked->num_sequences,
                "sequences (default 1)");
  options.count("--steps", 1, &asked->steps,
                "decode steps, with which the context ends; a prefill fills the rest (default "
                "128, or half of a short context)");
  options.flag("--all-layers", &asked->has_all_layers, "all layers (default: one of each kind)");
  options.section("how");
  options.count("-t,--threads", 1, &asked->threads, "threads (default 1)");
  options.count("--block-size,--page-size", 1, &asked->block_size, "tokens a block (default 16)");
  options.count("-ub,--ubatch-size,--max-num-batched-tokens", 1, &asked->micro_batch,
                "tokens appended at once (default 512)");
  options.text("--layout", "L", &asked->layout, "generic or hardware (default hardware)");
  options.text("--arith", "A", &asked->arithmetic,
               "auto, f32, f16 or int8 (default auto: int8 for tiles of int8, int4, q8_0 and q4_0 "
               "where integers are faster here, else f32)");
  options.count("--query-bits", 1, &asked->query_bits, "of int8: 16 or 8 (default 16)");
  options.section("report");
  options.list("--what-if", "A,B", &asked->what_if,
               "the same model under other architectures (words of --arch), instead of its own");
  options.flag("--planned", &asked->shows_planned,
               "show architectures that cannot run yet as planned");
  options.flag("--brief", &asked->is_brief, "the comparison and what was verified alone");
  options.text("--trace", "FILE", &asked->trace, "write a trace for chrome://tracing or Perfetto");
  options.flag("--json", &asked->is_json, "one JSON document on standard output");
  return [asked](Output& out) { return run(*asked, out); };
}

}  // namespace

const Command kProfileCommand{"profile", "MODEL [options]",
                              "run the cache for real: what it did, beside the plan", declare};

}  // namespace kvarto::cli
