// The planner's answer: the cost of a sequence, the work of a step, and each engine's ledger.

#include "kvarto/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "plan/engine.h"
#include "plan/owned_stream.h"
#include "plan/step_cost.h"

namespace kvarto {
namespace {

// Beyond these a request is refused by name instead of by an overflow somewhere below.
constexpr std::uint64_t kMaxContext = std::uint64_t{1} << 50;
constexpr std::uint32_t kMaxRanks = 1u << 16;
constexpr std::uint32_t kMaxDraft = 1u << 16;

Status check_range(std::string_view field, std::uint64_t value, std::uint64_t min,
                   std::uint64_t max) {
  if (value >= min && value <= max) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} {}, expected {} to {}", field, value, min, max));
}

Status check_request(const PlanRequest& request) {
  KVARTO_CHECK_OK(check_range("context", request.context, 0, kMaxContext));
  KVARTO_CHECK_OK(check_range("number of sequences", request.num_sequences, 1, kMaxSequences));
  KVARTO_CHECK_OK(check_range("tensor parallel size", request.tensor_parallel, 1, kMaxRanks));
  KVARTO_CHECK_OK(check_range("context parallel size", request.context_parallel, 1, kMaxRanks));
  KVARTO_CHECK_OK(check_range("draft layers", request.draft_layers, 0, kMaxDraft));
  return check_range("draft tokens", request.draft_tokens, 0, kMaxDraft);
}

// Sets the context that is planned and says why it is that one.
void resolve_context(const ModelSpec& model, PlanRequest& request, Plan& plan) {
  if (request.context == 0) {
    plan.is_default_context = true;
    const bool is_models = model.max_context != 0 && model.max_context <= kDefaultContextTokens;
    request.context = is_models ? model.max_context : kDefaultContextTokens;
    plan.notes.push_back(
        is_models ? fmt::format("context {} by default: the model's maximum", request.context)
        : model.max_context != 0
            ? fmt::format("context {} by default: the smaller of that and the model's maximum, {}",
                          request.context, model.max_context)
            : fmt::format("context {} by default: the model states no maximum", request.context));
  } else if (model.max_context != 0 && request.context > model.max_context) {
    plan.notes.push_back(fmt::format("context {} is above the model's maximum, {}", request.context,
                                     model.max_context));
  }
  plan.context = request.context;
}

// The last group that attends, whose geometry stands for draft layers that the file does not have.
const LayerGroup* last_attention_group(const ModelSpec& model) {
  const LayerGroup* last = nullptr;
  for (const LayerGroup& group : model.groups) {
    const bool attends =
        std::any_of(group.streams.begin(), group.streams.end(),
                    [](const Stream& stream) { return stream.purpose == Purpose::kAttention; });
    if (!attends || group.layers.empty()) continue;
    if (last == nullptr || group.layers.back() > last->layers.back()) last = &group;
  }
  return last;
}

// The draft layers that run: the file's own first, then copies of the model's last attention layer.
Result<std::vector<LayerGroup>> running_draft_groups(const ModelSpec& model,
                                                     std::uint32_t num_layers, Plan& plan) {
  std::vector<LayerGroup> running;
  std::uint32_t missing = num_layers;
  for (const LayerGroup& group : model.draft_groups) {
    if (missing == 0) break;
    running.push_back(group);
    auto& layers = running.back().layers;
    layers.resize(std::min<std::size_t>(layers.size(), missing));
    missing -= static_cast<std::uint32_t>(layers.size());
  }
  if (missing == 0) return running;
  const LayerGroup* pattern = last_attention_group(model);
  if (pattern == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("draft layers {}, expected none: the model has no attention layer",
                            num_layers));
  }
  running.push_back(*pattern);
  for (Stream& stream : running.back().streams) stream.owner_layer.reset();
  running.back().layers.assign(missing, model.num_layers);
  plan.notes.push_back(
      fmt::format("{} of {} draft layers are not in the model's file and are planned like its last "
                  "attention layer",
                  missing, num_layers));
  return running;
}

// Rows of a stream whose number does not grow without end, at saturation; nullopt if it does.
std::optional<std::uint64_t> saturated_rows(const Stream& stream, const PlanRequest& request) {
  const Lifetime& lifetime = stream.lifetime;
  const auto on_rank = [&](std::uint64_t rows) { return ceil_div(rows, request.context_parallel); };
  switch (lifetime.kind) {
    case Lifetime::Kind::kNever:
    case Lifetime::Kind::kStep:
      return std::nullopt;
    case Lifetime::Kind::kWindow:
      return on_rank(lifetime.tokens + ceil_div(request.draft_tokens, stream.tokens_per_row));
    case Lifetime::Kind::kChunk:
    case Lifetime::Kind::kKept:
      return on_rank(lifetime.tokens);
    case Lifetime::Kind::kTtl:
      return on_rank(ceil_div(lifetime.tokens, stream.tokens_per_row));
    case Lifetime::Kind::kConstant:
      return std::uint64_t{1} + request.draft_tokens;
  }
  return std::nullopt;
}

// The parts of the constant that are added and those that are taken off again.
struct FixedBytes {
  CheckedSum held;
  CheckedSum not_yet_born;
};

Status add_cost(SequenceCost& cost, FixedBytes& fixed, std::span<const LayerGroup> groups,
                const PlanRequest& request) {
  KVARTO_TRY(const std::vector<OwnedStream> streams,
             owned_streams(groups, request.tensor_parallel));
  for (const OwnedStream& owned : streams) {
    const Stream& stream = *owned.stream;
    const auto saturated = saturated_rows(stream, request);
    const std::uint64_t unborn = stream.lifetime.kind == Lifetime::Kind::kNever
                                     ? ceil_div(stream.birth_delay_tokens, stream.tokens_per_row)
                                     : 0;
    KVARTO_TRY(const std::uint64_t rows, total_rows(owned, {.rows = saturated.value_or(unborn)}));
    if (saturated) {
      fixed.held.add_product(rows, owned.on_rank.total());
      continue;
    }
    fixed.not_yet_born.add_product(rows, owned.on_rank.total());
    cost.slope_bytes_per_token +=
        static_cast<double>(owned.on_rank.total()) * static_cast<double>(owned.num_layers) /
        static_cast<double>(stream.tokens_per_row) / request.context_parallel;
  }
  if (fixed.held.has_overflow() || fixed.not_yet_born.has_overflow()) {
    return fail(ErrorCode::kInvalidArgument, "windows and states of one sequence overflow 64 bits");
  }
  return {};
}

Result<SequenceCost> sequence_cost(const EngineCase& engine_case) {
  PlanRequest one = engine_case.request;
  one.num_sequences = 1;
  const EngineCase of_one{engine_case.source, engine_case.model, engine_case.draft_groups, one,
                          kIdealEngine.profiles.front()};
  KVARTO_TRY(const EnginePlan ideal, kIdealEngine.plan(of_one));
  SequenceCost cost{.context = one.context, .bytes = ideal.bytes};
  FixedBytes fixed;
  KVARTO_CHECK_OK(add_cost(cost, fixed, engine_case.model.groups, one));
  KVARTO_CHECK_OK(add_cost(cost, fixed, engine_case.draft_groups, one));
  cost.fixed_bytes = fixed.held.total() - std::min(fixed.held.total(), fixed.not_yet_born.total());
  return cost;
}

struct EngineChoice {
  const Engine* engine = nullptr;
  std::string_view profile;
};

// Takes "NAME" or "NAME@PROFILE" apart.
Result<EngineChoice> find_engine(std::string_view word) {
  const std::size_t at = word.find('@');
  const std::string_view name = word.substr(0, at);
  for (const Engine& engine : engines()) {
    if (engine.name != name) continue;
    if (at == std::string_view::npos) return EngineChoice{&engine, engine.profiles.front()};
    const std::string_view profile = word.substr(at + 1);
    for (const std::string_view known : engine.profiles) {
      if (known == profile) return EngineChoice{&engine, known};
    }
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("engine {}: profile \"{}\" is unknown, expected one of {}", name,
                            profile, fmt::join(engine.profiles, " ")));
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("engine \"{}\" is unknown, expected all or one of {}", name,
                          fmt::join(engine_names(), " ")));
}

// Bytes of one sequence of so many tokens; nullopt where the engine refuses it.
std::optional<std::uint64_t> bytes_of_one(const Engine& engine, const EngineCase& engine_case,
                                          std::uint64_t tokens) {
  PlanRequest one = engine_case.request;
  one.context = tokens;
  one.num_sequences = 1;
  one.kv_memory_bytes = 0;
  const auto planned = engine.plan(
      {engine_case.source, engine_case.model, engine_case.draft_groups, one, engine_case.profile});
  return planned ? std::optional(planned->bytes) : std::nullopt;
}

// The tokens that the stated memory holds in whole blocks: sequences of the context asked for, and
// the longest that fits beside them.
void count_tokens_in_blocks(const Engine& engine, const EngineCase& engine_case, EnginePlan& plan) {
  const PlanRequest& request = engine_case.request;
  if (!plan.max_concurrency || !plan.tokens || request.context == 0) return;
  const std::uint64_t num_whole = *plan.tokens / request.context;
  const double of_whole = static_cast<double>(plan.bytes) /
                          static_cast<double>(request.num_sequences) *
                          static_cast<double>(num_whole);
  const double rest = static_cast<double>(request.kv_memory_bytes) - of_whole;
  std::uint64_t low = 0;
  std::uint64_t high = request.context - 1;
  while (low < high) {
    const std::uint64_t middle = low + (high - low + 1) / 2;
    const auto bytes = bytes_of_one(engine, engine_case, middle);
    if (bytes && static_cast<double>(*bytes) <= rest) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  plan.tokens = num_whole * request.context + low;
}

Result<EnginePlan> run_engine(const EngineChoice& choice, EngineCase engine_case) {
  engine_case.profile = choice.profile;
  if (!engine_case.request.layer_types.empty() &&
      !engine_traits(choice.engine->name).has_layer_types) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("engine {}: found types by layer, but it has one type of K and one of V "
                    "for all layers",
                    choice.engine->name));
  }
  KVARTO_TRY(EnginePlan plan, choice.engine->plan(engine_case));
  plan.engine = choice.engine->name;
  plan.profile = choice.profile;
  if (engine_traits(plan.engine).counts_whole_blocks) {
    count_tokens_in_blocks(*choice.engine, engine_case, plan);
  }
  for (std::string& note : foreign_option_notes(engine_case.request, plan.engine)) {
    if (std::find(plan.notes.begin(), plan.notes.end(), note) == plan.notes.end()) {
      plan.notes.push_back(std::move(note));
    }
  }
  return plan;
}

bool is_planned(const Plan& plan, const EngineChoice& choice) {
  return std::any_of(plan.engines.begin(), plan.engines.end(), [&](const EnginePlan& done) {
    return done.engine == choice.engine->name && done.profile == choice.profile;
  });
}

void run_all_engines(const EngineCase& engine_case, Plan& plan) {
  for (const Engine& engine : engines()) {
    const EngineChoice choice{&engine, engine.profiles.front()};
    if (is_planned(plan, choice)) continue;
    auto result = run_engine(choice, engine_case);
    if (result) {
      plan.engines.push_back(std::move(*result));
    } else {
      plan.refusals.push_back({std::string(engine.name), std::move(result).error()});
    }
  }
}

}  // namespace

Result<Plan> plan(const ModelSpec& model, const PlanRequest& asked,
                  const std::vector<std::string>& engines) {
  KVARTO_CHECK_OK(check_request(asked));
  Plan plan;
  PlanRequest request = asked;
  resolve_context(model, request, plan);
  KVARTO_TRY(const ModelSpec typed, with_types(model, request.types, request.layer_types));
  KVARTO_TRY(const std::vector<LayerGroup> draft_groups,
             running_draft_groups(typed, request.draft_layers, plan));
  const EngineCase engine_case{model, typed, draft_groups, request, {}};
  KVARTO_TRY(plan.sequence, sequence_cost(engine_case));
  KVARTO_TRY(plan.step, step_cost(typed, request));
  for (const std::string& word : engines) {
    if (word == "all") {
      run_all_engines(engine_case, plan);
      continue;
    }
    KVARTO_TRY(const EngineChoice choice, find_engine(word));
    if (is_planned(plan, choice)) continue;
    KVARTO_TRY(EnginePlan engine_plan, run_engine(choice, engine_case));
    plan.engines.push_back(std::move(engine_plan));
  }
  return plan;
}

}  // namespace kvarto
