// kvarto plan: what a model's cache costs, on which engine, and why.

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "command.h"
#include "kvarto/catalogue.h"
#include "model_options.h"
#include "numbers.h"
#include "plan_report.h"

namespace kvarto::cli {
namespace {

// The longest context that is searched for: far above any model's, so that memory decides.
constexpr std::uint64_t kMaxSearchedTokens = std::uint64_t{1} << 40;
// The share of a device's memory that an engine takes; vLLM's documented default.
constexpr double kDefaultUtilization = 0.9;

struct Asked {
  ModelOptions model;
  std::optional<std::uint64_t> context, num_sequences, tensor_parallel, block_size, micro_batch;
  bool is_swa_full = false;
  bool is_unified = false;
  std::string arithmetic = "auto";
  std::string flash_attention;
  bool is_prefix_caching = false;
  std::optional<std::uint64_t> context_parallel, draft_layers, draft_tokens;
  std::optional<std::uint64_t> kv_memory, device_memory, weights;
  std::optional<std::uint64_t> num_threads;
  std::optional<double> utilization;
  std::vector<std::string> engines;
  std::string device;
  std::vector<std::string> what_if;
  std::vector<std::string> lengths;
  bool is_explained = false;
  bool is_json = false;
};

Result<PlanRequest> request_of(const Asked& asked) {
  PlanRequest request;
  request.context = asked.context.value_or(0);
  request.num_sequences = asked.num_sequences.value_or(1);
  request.types = cache_types(asked.model);
  KVARTO_TRY(request.layer_types, layer_types(asked.model));
  KVARTO_CHECK_OK(
      narrow("--tensor-parallel-size", asked.tensor_parallel, &request.tensor_parallel));
  KVARTO_CHECK_OK(
      narrow("--decode-context-parallel-size", asked.context_parallel, &request.context_parallel));
  KVARTO_CHECK_OK(narrow("--draft-layers", asked.draft_layers, &request.draft_layers));
  KVARTO_CHECK_OK(narrow("--draft-max", asked.draft_tokens, &request.draft_tokens));
  request.block_size = asked.block_size.value_or(0);
  request.micro_batch = asked.micro_batch.value_or(0);
  request.is_swa_full = asked.is_swa_full;
  if (asked.is_unified) request.is_unified = true;
  if (!asked.flash_attention.empty()) {
    if (asked.flash_attention != "on" && asked.flash_attention != "off") {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--flash-attn: found \"{}\", expected on or off", asked.flash_attention));
    }
    request.has_flash_attention = asked.flash_attention == "on";
  }
  request.is_prefix_caching = asked.is_prefix_caching;
  KVARTO_TRY(const Arith arith, parse_arith(asked.arithmetic));
  request.keeps_squares = arith == Arith::kF16;
  return request;
}

// Weights that one rank holds: as stated, else as the file says; nullopt if neither does.
std::optional<std::uint64_t> rank_weights(const Asked& asked, const ModelSpec& model,
                                          std::uint32_t ranks) {
  const std::uint64_t weights = asked.weights.value_or(model.weight_bytes);
  if (weights == 0 && !asked.weights.has_value()) return std::nullopt;
  return weights / ranks + (weights % ranks == 0 ? 0 : 1);
}

// The memory for the cache on one rank; 0 if none was stated. Sets notes of what was assumed.
Result<std::uint64_t> kv_memory(const Asked& asked, PlanReport* report) {
  const bool has_share = asked.utilization.has_value();
  if (asked.kv_memory.has_value()) {
    if (asked.device_memory.has_value() || has_share) {
      return fail(ErrorCode::kInvalidArgument,
                  "--kv-memory states the memory for the cache; give it alone, or --device-memory");
    }
    if (*asked.kv_memory == 0) {
      return fail(ErrorCode::kInvalidArgument, "--kv-memory: found 0, expected at least one byte");
    }
    return *asked.kv_memory;
  }
  std::optional<std::uint64_t> memory = asked.device_memory;
  const bool wants_device = has_share || report->weight_bytes.has_value();
  if (!memory.has_value() && report->device.has_value() && wants_device) {
    memory = report->device->memory_bytes;
  }
  if (!memory.has_value()) {
    if (!has_share) return 0;
    return fail(ErrorCode::kInvalidArgument,
                "--gpu-memory-utilization: a share of what? give --device-memory or --device");
  }
  if (!has_share) {
    report->notes.push_back(
        fmt::format("{} of the device's memory is used (default of "
                    "--gpu-memory-utilization)",
                    kDefaultUtilization));
  }
  if (!report->weight_bytes.has_value()) {
    report->notes.emplace_back(
        "the weights are not counted: the model's file does not say their "
        "bytes; give --weights");
  }
  const double share = asked.utilization.value_or(kDefaultUtilization);
  const auto usable = static_cast<std::uint64_t>(static_cast<double>(*memory) * share);
  const std::uint64_t weights = report->weight_bytes.value_or(0);
  if (usable <= weights) {
    return fail(
        ErrorCode::kOutOfMemory,
        fmt::format("{} of {} is {}, and the weights take {}: nothing is left for the cache",
                    short_real(share), short_bytes(*memory), short_bytes(usable),
                    short_bytes(weights)));
  }
  return usable - weights;
}

// On the engines asked for by name. Of those that were not, one that cannot is left out and said.
Result<Plan> plan_engines(const Asked& asked, const PlanReport& report) {
  if (!asked.engines.empty()) return plan(report.model, report.request, asked.engines);
  Result<Plan> both = plan(report.model, report.request, {"ideal", "kvarto"});
  if (both.has_value()) return both;
  KVARTO_TRY(Plan ideal, plan(report.model, report.request, {"ideal"}));
  ideal.refusals.push_back({"kvarto", std::move(both).error()});
  return ideal;
}

// A figure of the search; nullopt where only the search's own end stopped it.
std::optional<std::uint64_t> below_end(std::uint64_t found, std::uint64_t end) {
  return found < end ? std::optional(found) : std::nullopt;
}

Result<EngineReport> engine_report(const PlanReport& report, EnginePlan plan) {
  EngineReport engine;
  engine.plan = std::move(plan);
  engine.smallest_device =
      smallest_device(engine.plan.bytes + report.weight_bytes.value_or(0), catalogue_devices());
  const std::uint64_t memory = report.request.kv_memory_bytes;
  if (memory > 0) {
    const std::string name = engine.plan.profile.empty()
                                 ? engine.plan.engine
                                 : engine.plan.engine + "@" + engine.plan.profile;
    EngineFit fit;
    KVARTO_TRY(const std::uint64_t context,
               largest_context(report.model, report.request, name, memory, kMaxSearchedTokens));
    KVARTO_TRY(const std::uint64_t num_sequences,
               largest_num_sequences(report.model, report.request, name, memory));
    fit.largest_context = below_end(context, kMaxSearchedTokens);
    fit.largest_num_sequences = below_end(num_sequences, kMaxSequences);
    engine.fit = fit;
  }
  return engine;
}

Result<std::vector<std::uint64_t>> parse_lengths(const std::vector<std::string>& words) {
  std::vector<std::uint64_t> lengths;
  for (const std::string& word : words) {
    const Result<std::uint64_t> length = parse_count(word);
    if (!length.has_value()) {
      return fail(ErrorCode::kInvalidArgument, "--lengths: " + length.error().message);
    }
    lengths.push_back(*length);
  }
  return lengths;
}

Status add_tables(const Asked& asked, PlanReport* report) {
  if (!asked.what_if.empty()) {
    KVARTO_TRY(const WhatIfDefaults defaults, what_if_defaults(asked.model));
    KVARTO_TRY(report->what_if, what_if(report->model, report->request, asked.what_if, defaults));
  }
  if (!asked.lengths.empty()) {
    KVARTO_TRY(const std::vector<std::uint64_t> lengths, parse_lengths(asked.lengths));
    KVARTO_TRY(report->reservation, compare_reservation(report->model, report->request, lengths));
  }
  return {};
}

// Whether rows are kept as this project keeps them: some versions of other engines expand latents
// into K and V, each of its own type.
bool is_own_engine(const Asked& asked) {
  return std::all_of(asked.engines.begin(), asked.engines.end(), [](const std::string& engine) {
    return engine == "ideal" || engine == "kvarto";
  });
}

Result<ExitCode> run(const Asked& asked, Output& out) {
  PlanReport report;
  KVARTO_TRY(report.model, open_asked(asked.model, asked.what_if));
  KVARTO_TRY(report.request, request_of(asked));
  if (is_own_engine(asked) && asked.what_if.empty())
    KVARTO_CHECK_OK(check_latent_options(asked.model, report.model));
  report.types_by_layer = asked.model.types_by_layer;
  report.notes = report.model.notes;
  if (asked.num_threads.has_value()) {
    report.notes.emplace_back("--threads changes nothing: a cache has one size on all of them");
  }
  report.weight_bytes = rank_weights(asked, report.model, report.request.tensor_parallel);
  if (!asked.device.empty()) {
    KVARTO_TRY(report.device, catalogue_device(asked.device));
  }
  KVARTO_TRY(report.request.kv_memory_bytes, kv_memory(asked, &report));

  KVARTO_TRY(Plan planned, plan_engines(asked, report));
  report.context = planned.context;
  report.is_default_context = planned.is_default_context;
  report.request.context = planned.context;
  report.sequence = planned.sequence;
  report.step = planned.step;
  report.refusals = std::move(planned.refusals);
  // The planner may repeat a note of the model.
  for (std::string& note : planned.notes) {
    if (std::find(report.notes.begin(), report.notes.end(), note) == report.notes.end()) {
      report.notes.push_back(std::move(note));
    }
  }
  for (EnginePlan& engine : planned.engines) {
    KVARTO_TRY(EngineReport done, engine_report(report, std::move(engine)));
    report.engines.push_back(std::move(done));
  }
  KVARTO_CHECK_OK(add_tables(asked, &report));
  report.is_explained = asked.is_explained;
  asked.is_json ? print_plan_json(report, out) : print_plan_text(report, out);
  return ExitCode::kDone;
}

void declare_load(OptionSet& options, Asked* asked) {
  options.section("load");
  options.count("-c,--ctx-size,--max-model-len,--context-length", 1, &asked->context,
                "tokens a sequence (default: the smaller of the model's maximum and 32768)");
  options.count("-np,--parallel,--max-num-seqs,--batch", 1, &asked->num_sequences,
                "sequences (default 1)");
  options.count("-tp,--tensor-parallel-size", 1, &asked->tensor_parallel,
                "ranks that share the heads (default 1)");
  options.count("-t,--threads", 1, &asked->num_threads, "accepted; changes nothing in a plan");
}

void declare_engines(OptionSet& options, Asked* asked) {
  options.section("engines");
  options.list("--engine", "E", &asked->engines,
               fmt::format("one of {}, or all; may be repeated; NAME@PROFILE for a version "
                           "(default ideal and kvarto)",
                           fmt::join(engine_names(), " ")));
  options.count("--block-size,--page-size", 1, &asked->block_size, "tokens a block");
  options.count("-ub,--ubatch-size,--max-num-batched-tokens", 1, &asked->micro_batch,
                "tokens appended at once");
  options.text(
      "--arith", "A", &asked->arithmetic,
      "kvarto: auto, f32, f16 or int8; f16 keeps squares of what is written (default auto)");
  options.flag("--swa-full", &asked->is_swa_full, "keep sliding windows in full");
  options.flag("-kvu,--kv-unified", &asked->is_unified, "one pool for all sequences");
  options.text("-fa,--flash-attn", "on|off", &asked->flash_attention,
               "llama.cpp: whether attention is fused, which decides how V is stored (default on)");
  options.flag("--enable-prefix-caching", &asked->is_prefix_caching,
               "engines that keep snapshots of states for it");
  options.count("-dcp,--decode-context-parallel-size", 1, &asked->context_parallel,
                "ranks that share the tokens (default 1)");
  options.count("--draft-layers", 0, &asked->draft_layers,
                "draft or multi-token-prediction layers that run (default 0)");
  options.count("--draft-max,--speculative-num-draft-tokens", 0, &asked->draft_tokens,
                "tokens in flight when speculating (default 0)");
}

void declare_memory(OptionSet& options, Asked* asked) {
  options.section("memory and device");
  options.size("--kv-memory", &asked->kv_memory, "memory for the cache: what fits?");
  options.size("--device-memory", &asked->device_memory,
               "memory of a device, of which the cache takes what the weights leave");
  options.fraction("--gpu-memory-utilization,--mem-fraction-static", &asked->utilization,
                   "share of the device's memory that is used (default 0.9)");
  options.size("--weights", &asked->weights, "bytes of the weights, all ranks together");
  options.text("--device", "NAME", &asked->device,
               "least time of decode and prefill there (see kvarto models --devices)");
}

Runner declare(OptionSet& options) {
  auto asked = std::make_shared<Asked>();
  declare_model(options, &asked->model, TypeUse::kPlanned);
  declare_load(options, asked.get());
  declare_engines(options, asked.get());
  declare_memory(options, asked.get());
  options.section("tables");
  options.flag("--explain", &asked->is_explained, "the ledger as a tree: every byte has a cause");
  options.list("--what-if", "A,B", &asked->what_if,
               "the same model under other architectures (words of --arch)");
  options.list("--lengths", "N,N", &asked->lengths,
               "contiguous against paged reservation for sequences of these lengths");
  options.flag("--json", &asked->is_json, "one JSON document on standard output");
  return [asked](Output& out) { return run(*asked, out); };
}

}  // namespace

const Command kPlanCommand{"plan", "MODEL [options]",
                           "what the cache costs, on which engine, and why", declare};

}  // namespace kvarto::cli
