#include "kvarto/profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "cache/storage.h"
#include "kvarto/plan.h"
#include "profile/profile_loop.h"
#include "profile/run_report.h"

namespace kvarto {
namespace {

constexpr std::uint64_t kDefaultSteps = 128;

}  // namespace

std::uint64_t default_steps(std::uint64_t context) {
  if (context >= 2 * kDefaultSteps) return kDefaultSteps;
  return std::max<std::uint64_t>(context / 2, 1);
}

bool ProfileRun::is_all_met() const {
  return std::all_of(verified.begin(), verified.end(),
                     [](const Verified& statement) { return statement.is_met; });
}

namespace {

// --- Request -------------------------------------------------------------------------------------

Status check_request(const ProfileRequest& request) {
  const std::uint64_t steps =
      request.num_steps == 0 ? default_steps(request.context) : request.num_steps;
  if (request.context == 0) {
    return fail(ErrorCode::kInvalidArgument, "context: found 0, expected at least 1 token");
  }
  if (steps > request.context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("steps: found {}, expected at most the context of {} tokens, which "
                            "they end at",
                            steps, request.context));
  }
  if (request.num_sequences == 0) {
    return fail(ErrorCode::kInvalidArgument, "sequences: found 0, expected at least 1");
  }
  return {};
}

// The group, or its first layer.
ModelSpec one_group(const ProfileRequest& request, const LayerGroup& group) {
  ModelSpec model = request.model;
  model.groups = {group};
  model.draft_groups.clear();
  if (!request.has_all_layers) model.groups.front().layers.resize(1);
  model.num_layers = static_cast<std::uint32_t>(model.groups.front().layers.size());
  return model;
}

// With the layer behind it whose selection the group reuses, if it does.
ModelSpec with_selecting_layer(ModelSpec model, const ProfileRequest& request,
                               const LayerGroup& group) {
  const std::optional<std::uint32_t> layer = selection_layer(group);
  if (!layer.has_value()) return model;
  model.groups.push_back(*selecting_group(request.model, group));
  model.groups.back().layers = {*layer};
  ++model.num_layers;
  return model;
}

PlanRequest plan_request(const ProfileRequest& request, const ModelSpec& model,
                         std::uint64_t context) {
  PlanRequest plan;
  plan.context = context;
  plan.num_sequences = request.num_sequences;
  plan.types = request.types;
  plan.layer_types = types_within(model, request.layer_types);
  plan.block_size = request.block_size;
  plan.micro_batch = request.micro_batch;
  plan.keeps_squares = request.arith == Arith::kF16;
  return plan;
}

// Refuses what memory does not hold: the cache as planned, and the queries beside it.
Status check_memory(const ProfileRequest& request, const LayerGroup& group, const Plan& plan) {
  const auto query_bytes = checked_mul(
      request.num_sequences, std::uint64_t{group.query.q_heads} *
                                 (group.query.qk_dim + group.query.v_dim) * sizeof(float));
  const auto needed =
      query_bytes ? checked_add(*query_bytes, plan.engines.front().bytes) : std::nullopt;
  const std::uint64_t available = available_memory_bytes();
  if (needed.has_value() && *needed <= available) return {};
  return fail(
      ErrorCode::kOutOfMemory,
      fmt::format("{}: {} sequences of {} tokens need {} bytes, {} are available",
                  group.architecture, request.num_sequences, request.context,
                  needed ? std::to_string(*needed) : std::string("more than 2^64"), available));
}

std::string type_of(const LayerGroup& group, const CacheTypes& types) {
  // A row of several codecs has the name that was asked for.
  if (serves_both(group)) {
    const Stream& stream = group.streams.front();
    const bool is_mixed = stream.fields.back().codec != stream.fields.front().codec;
    return is_mixed ? types.key : std::string(codec_info(stream.fields.front().codec).name);
  }
  std::string k;
  std::string v;
  for (const Stream& stream : group.streams) {
    (stream.name == "k" ? k : v) = codec_info(stream.fields.front().codec).name;
  }
  return k == v ? k : k + "/" + v;
}

Result<ProfileRun> profile_group(const ProfileRequest& request, const LayerGroup& group) {
  const ModelSpec own = one_group(request, group);
  const ModelSpec model = with_selecting_layer(own, request, group);
  KVARTO_TRY(const Plan allocation,
             plan(model, plan_request(request, model, request.context), {"kvarto"}));
  KVARTO_CHECK_OK(check_memory(request, group, allocation));
  ProfileRun run;
  run.architecture = group.architecture;
  run.layers = own.groups.front().layers;
  run.type = type_of(group, types_of_layer(run.layers.front(), request.types, request.layer_types));
  run.selection_layer = selection_layer(group);
  run.batch = request.num_sequences;
  KVARTO_TRY(const std::unique_ptr<ProfileLoop> loop, ProfileLoop::create(request, model));
  KVARTO_CHECK_OK(loop->run(run));
  run.context = loop->num_tokens();
  KVARTO_TRY(const Plan ideal, plan(own, plan_request(request, own, run.context), {"ideal"}));
  KVARTO_CHECK_OK(report_run(request, *loop, {allocation, ideal}, run));
  return run;
}

// Whether groups differ in nothing but the layer whose selection they reuse.
bool is_alike(const LayerGroup& a, const LayerGroup& b) {
  if (a.architecture != b.architecture || !(a.query == b.query) || !selection_layer(a) ||
      !selection_layer(b)) {
    return false;
  }
  std::vector<Stream> streams = b.streams;
  for (std::size_t i = 0; i < std::min(streams.size(), a.streams.size()); ++i) {
    streams[i].selection_layer = a.streams[i].selection_layer;
  }
  return streams == a.streams;
}

// A group that runs, and how many layers of the model are like its own.
struct Kind {
  const LayerGroup* group = nullptr;
  std::size_t num_layers = 0;
};
std::vector<Kind> kinds_of(const ProfileRequest& request) {
  std::vector<Kind> kinds;
  for (const LayerGroup& group : request.model.groups) {
    if (group.streams.empty()) continue;
    const auto same = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) {
      return !request.has_all_layers && is_alike(*kind.group, group);
    });
    if (same == kinds.end()) {
      kinds.push_back({&group, group.layers.size()});
    } else {
      same->num_layers += group.layers.size();
    }
  }
  return kinds;
}

}  // namespace

Result<std::vector<ProfileRun>> profile(const ProfileRequest& request) {
  KVARTO_CHECK_OK(check_request(request));
  std::vector<ProfileRun> runs;
  for (const LayerGroup& group : request.model.groups) {
    if (!group.streams.empty()) KVARTO_CHECK_OK(check_runnable(request.model, group));
  }
  for (const Kind& kind : kinds_of(request)) {
    if (!runs.empty() && request.is_stopping != nullptr && request.is_stopping->load()) break;
    try {
      KVARTO_TRY(ProfileRun run, profile_group(request, *kind.group));
      run.group_layers = static_cast<std::uint32_t>(kind.num_layers);
      runs.push_back(std::move(run));
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::kOutOfMemory,
                  "profile: memory beside the cache could not be allocated");
    }
  }
  if (runs.empty()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: no layer caches anything", request.model.name));
  }
  return runs;
}

}  // namespace kvarto
