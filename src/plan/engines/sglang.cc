// Engine `sglang`: a pool of tokens, one spare page, K and V printed apart; windowed layers in a
// pool of their own of 0.8 times the tokens; recurrent states in slots, one more than sequences.
//
// Source: sgl-project/sglang python/sglang/srt/model_executor/pool_configurator.py; logs. Profiles
// differ in the fp8 rows of DSA models: 576 bytes (2026), 656 (2025-10), 656 with the index cache
// allocated but neither budgeted nor printed (2025-09).

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "plan/engines/paged_layers.h"

namespace kvarto {
namespace {

constexpr std::array<std::string_view, 3> kProfiles = {"2026", "2025-10", "2025-09"};
constexpr std::uint64_t kDsaPageTokens = 64;
// swa_full_tokens_ratio's default, as a fraction.
constexpr std::uint64_t kWindowTokensNumerator = 4;
constexpr std::uint64_t kWindowTokensDenominator = 5;

// The engine's fp8 rows of a DSA model are records with scales before 2026.
Result<ModelSpec> sglang_model(const EngineCase& engine_case) {
  const CacheTypes& types = engine_case.request.types;
  const bool is_fp8 = types.key == "fp8" || types.key == "fp8_e4m3";
  const bool has_index = std::any_of(
      engine_case.model.groups.begin(), engine_case.model.groups.end(), [](const LayerGroup& g) {
        return std::any_of(g.streams.begin(), g.streams.end(), [](const Stream& s) {
          return s.purpose == Purpose::kIndexer && s.name == "index_key";
        });
      });
  if (!is_fp8 || !has_index || engine_case.profile == "2026") return engine_case.model;
  CacheTypes records = types;
  records.key = records.value = "fp8_ds_mla";
  return with_types(engine_case.source, records);
}

struct Pools {
  std::uint64_t full_tokens = 0;  // of the pool without the spare page
  std::uint64_t window_tokens = 0;
  std::uint64_t page = 1;
};

// Bytes of one token on one rank: all full layers, all windowed layers, the index part apart.
struct Cell {
  std::uint64_t full = 0, window = 0, index = 0, key = 0, value = 0, draft = 0;
  bool has_value = false;
};

std::uint64_t round_down(std::uint64_t value, std::uint64_t multiple) {
  return value / multiple * multiple;
}

Cell cell_of(const std::vector<PagedLayers>& layers) {
  Cell cell;
  for (const PagedLayers& l : layers) {
    if (l.is_state()) continue;
    for (const OwnedStream& owned : l.streams) {
      const std::uint64_t bytes = owned.on_rank.total() * l.num_layers;
      const bool is_window = l.kind == PageKind::kWindow;
      if (l.is_draft) {
        cell.draft += bytes;
        continue;
      }
      (is_window ? cell.window : cell.full) += bytes;
      if (l.is_indexer) cell.index += bytes;
      if (!is_window && !l.is_indexer) {
        const bool is_value = owned.stream->name == "v";
        cell.has_value = cell.has_value || is_value;
        (is_value ? cell.value : cell.key) += bytes;
      }
    }
  }
  return cell;
}

Result<Pools> pools_of(const PlanRequest& request, const Cell& cell, bool has_index) {
  Pools pools;
  pools.page = request.block_size != 0 ? request.block_size : has_index ? kDsaPageTokens : 1;
  const std::uint64_t context = ceil_div(request.context, request.context_parallel);
  const auto wanted = checked_mul(round_up(context, pools.page), request.num_sequences);
  if (!wanted || *wanted > (std::uint64_t{1} << 56)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("engine sglang: {} sequences of {} tokens overflow 64 bits",
                            request.num_sequences, context));
  }
  pools.full_tokens = *wanted;
  if (cell.window != 0) {
    pools.window_tokens =
        cell.full == 0
            ? pools.full_tokens
            : round_down(pools.full_tokens * kWindowTokensNumerator / kWindowTokensDenominator,
                         pools.page);
  }
  return pools;
}

Status add_pool(Ledger& ledger, const PagedLayers& layers, const PlanRequest& request,
                const Pools& pools) {
  const Stream& stream = *layers.streams.front().stream;
  const bool is_window = layers.kind == PageKind::kWindow && !layers.is_draft;
  const std::uint64_t tokens = is_window ? pools.window_tokens : pools.full_tokens;
  const auto one = [&](std::uint64_t rows) {
    return RowsEntry{.rows = rows, .num_sequences = 1, .num_ranks = request.tensor_parallel};
  };
  const std::uint64_t rows = tokens / layers.tokens_per_row;
  const std::uint64_t live =
      std::min(rows, ceil_div(peak_rows(stream, request.context), request.context_parallel) *
                         request.num_sequences);
  KVARTO_CHECK_OK(add_live_rows(ledger, layers, one(live)));
  KVARTO_CHECK_OK(add_rows_as(ledger, layers, one(rows - live),
                              stream.lifetime.kind == Lifetime::Kind::kNever
                                  ? Cause::kBlockRounding
                                  : Cause::kWindowSlack));
  return add_rows_as(ledger, layers, one(ceil_div(pools.page, layers.tokens_per_row)),
                     Cause::kSpare);
}

Status add_states(Ledger& ledger, const PagedLayers& layers, const PlanRequest& request) {
  const auto entry = [&](std::uint64_t slots) {
    return RowsEntry{.rows = 1, .num_sequences = slots, .num_ranks = request.tensor_parallel};
  };
  KVARTO_CHECK_OK(add_live_rows(ledger, layers, entry(request.num_sequences)));
  if (request.draft_tokens != 0) {
    KVARTO_CHECK_OK(add_rows_as(ledger, layers, entry(request.num_sequences * request.draft_tokens),
                                Cause::kSnapshots));
  }
  return add_rows_as(ledger, layers, entry(1), Cause::kSpare);
}

// With the memory stated, the engine sizes the pool by it.
void set_pool_size(EnginePlan& plan, const PlanRequest& request, const Cell& cell,
                   const Pools& pools, std::uint64_t unbudgeted) {
  if (request.kv_memory_bytes == 0) return;
  std::uint64_t per_token = cell.full + cell.draft - unbudgeted;
  if (cell.full == 0)
    per_token = cell.window;
  else
    per_token += cell.window * kWindowTokensNumerator / kWindowTokensDenominator;
  if (per_token == 0) return;
  plan.tokens = round_down(request.kv_memory_bytes / per_token, pools.page);
  plan.blocks = *plan.tokens / pools.page;
  plan.max_concurrency = static_cast<double>(*plan.tokens) / static_cast<double>(request.context);
}

void print(EnginePlan& plan, const EngineCase& engine_case, const Cell& cell, const Pools& pools) {
  const std::uint64_t planned = plan.tokens.value_or(pools.full_tokens);
  const double tokens = static_cast<double>(planned + pools.page);
  const bool is_index_hidden = engine_case.profile == "2025-09";
  plan.printed["tokens"] = fmt::format("{}", planned);
  if (cell.has_value) {
    plan.printed["k_gb"] = gib(tokens * static_cast<double>(cell.key));
    plan.printed["v_gb"] = gib(tokens * static_cast<double>(cell.value));
    plan.printed["printed_gb"] = plan.printed["k_gb"];
  } else if (cell.key != 0) {
    plan.printed["kv_gb"] =
        gib(tokens * static_cast<double>(cell.key + (is_index_hidden ? 0 : cell.index)));
    plan.printed["printed_gb"] = plan.printed["kv_gb"];
  }
  if (cell.window != 0) {
    plan.printed["swa_tokens"] = fmt::format("{}", pools.window_tokens);
    // K and V of windowed layers are equally wide in every model that the engine runs.
    plan.printed["swa_k_gb"] = gib(static_cast<double>(pools.window_tokens + pools.page) *
                                   static_cast<double>(cell.window) / 2);
  }
  if (cell.draft != 0) {
    plan.printed["draft_k_gb"] = gib(tokens * static_cast<double>(cell.draft) / 2);
  }
}

// The recurrent pool as its own line shows it: conv and state apart, one slot more than sequences.
void print_states(EnginePlan& plan, const std::vector<PagedLayers>& layers,
                  const PlanRequest& request) {
  double conv = 0;
  double state = 0;
  for (const PagedLayers& l : layers) {
    if (!l.is_state()) continue;
    for (const OwnedStream& owned : l.streams) {
      const double bytes =
          static_cast<double>(owned.on_rank.total()) * static_cast<double>(l.num_layers);
      (owned.stream->name == "conv_state" ? conv : state) += bytes;
    }
  }
  if (conv + state == 0) return;
  const double slots = static_cast<double>(request.num_sequences + 1);
  plan.printed["max_mamba"] = fmt::format("{}", request.num_sequences);
  plan.printed["conv_gb"] = gib(conv * slots);
  plan.printed["ssm_gb"] = gib(state * slots);
}

// Rows that the windows of all sequences hold at once.
std::uint64_t window_tokens_wanted(const std::vector<PagedLayers>& layers,
                                   const PlanRequest& request) {
  std::uint64_t wanted = 0;
  for (const PagedLayers& l : layers) {
    if (l.kind != PageKind::kWindow || l.is_draft) continue;
    wanted = std::max(
        wanted, peak_rows(*l.streams.front().stream, request.context) * request.num_sequences);
  }
  return wanted;
}

Result<EnginePlan> plan_sglang(const EngineCase& engine_case) {
  const PlanRequest& request = engine_case.request;
  KVARTO_CHECK_OK(check_gpu_types(request, "sglang"));
  KVARTO_TRY(const ModelSpec model, sglang_model(engine_case));
  const EngineCase typed{.source = engine_case.source,
                         .model = model,
                         .draft_groups = engine_case.draft_groups,
                         .request = request,
                         .profile = engine_case.profile};
  KVARTO_TRY(const std::vector<PagedLayers> layers, paged_layers(typed, "sglang"));
  if (has_compressed_rows(layers)) {
    return fail(ErrorCode::kUnsupported,
                "engine sglang: rows compressed over tokens, whose pools this profile does not "
                "model");
  }
  const Cell cell = cell_of(layers);
  KVARTO_TRY(const Pools pools, pools_of(request, cell, cell.index != 0));
  Ledger ledger;
  for (const PagedLayers& l : layers) {
    KVARTO_CHECK_OK(l.is_state() ? add_states(ledger, l, request)
                                 : add_pool(ledger, l, request, pools));
  }
  EnginePlan plan;
  KVARTO_CHECK_OK(std::move(ledger).finish(plan));
  set_pool_size(plan, request, cell, pools, engine_case.profile == "2025-09" ? cell.index : 0);
  print(plan, engine_case, cell, pools);
  print_states(plan, layers, request);
  const std::uint64_t wanted = window_tokens_wanted(layers, request);
  if (pools.window_tokens < wanted) {
    plan.notes.push_back(
        fmt::format("the pool of windowed layers has {} tokens by swa_full_tokens_ratio 0.8, the "
                    "windows of this load want {}: raise the ratio",
                    pools.window_tokens, wanted));
  }
  return plan;
}

}  // namespace

const Engine kSglangEngine = {"sglang", kProfiles, &plan_sglang};

}  // namespace kvarto
