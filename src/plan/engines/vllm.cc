// Engine `vllm`: blocks of a pool that all groups of layers share.
//
// Profiles: v1-2026 (the printed token count is concurrency times max_model_len), v1-2025 (it is
// blocks // groups x block size), v0.

#include <fmt/format.h>

#include <array>

#include "base/checked.h"
#include "plan/engines/vllm_pages.h"

namespace kvarto {
namespace {

constexpr std::array<std::string_view, 3> kProfiles = {"v1-2026", "v1-2025", "v0"};
constexpr std::uint64_t kV0SwapBytes = std::uint64_t{4} << 30;  // swap_space's default

VllmRules rules_of(std::string_view profile) {
  if (profile == "v1-2025") return {.are_tokens_per_request = false};
  if (profile == "v0") {
    return {.default_batched_tokens = 2048, .are_tokens_per_request = false, .is_v0 = true};
  }
  return {};
}

Status check_heads(const EngineCase& engine_case) {
  const std::uint32_t ranks = engine_case.request.tensor_parallel;
  for (const LayerGroup& group : engine_case.model.groups) {
    for (const Stream& stream : group.streams) {
      if (stream.shard != Shard::kHead || stream.purpose != Purpose::kAttention) continue;
      const std::uint32_t heads = stream.fields.front().heads;
      if (heads % ranks == 0 || ranks % heads == 0) continue;
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("engine vllm: {} KV heads on tensor parallel size {}, expected one to "
                      "divide the other",
                      heads, ranks));
    }
  }
  return {};
}

// The rows of one sequence that one group's blocks hold, by what they are for.
struct Rows {
  std::uint64_t live = 0;      // as the ideal engine
  std::uint64_t slack = 0;     // of windows: rows of tokens in flight
  std::uint64_t rounding = 0;  // whole blocks
};

Rows rows_of(const VllmGroup& group, const PlanRequest& request, const VllmRules& rules) {
  const Stream& stream = *group.layers.streams.front().stream;
  const std::uint64_t context = ceil_div(request.context, request.context_parallel);
  Rows rows;
  const std::uint64_t held = group.blocks_per_sequence * group.rows_per_page;
  rows.live =
      std::min(held, ceil_div(peak_rows(stream, request.context), request.context_parallel));
  const bool is_windowed = stream.lifetime.kind == Lifetime::Kind::kWindow ||
                           stream.lifetime.kind == Lifetime::Kind::kChunk;
  if (is_windowed) {
    const std::uint64_t in_window = stream.lifetime.tokens - 1 + batched_tokens(request, rules);
    const std::uint64_t wanted =
        group.layers.kind == PageKind::kFull ? context : std::min(context, in_window);
    rows.slack = std::min(held, std::max(wanted, rows.live)) - rows.live;
  }
  rows.rounding = held - rows.live - rows.slack;
  return rows;
}

std::uint64_t ranks_of(const PlanRequest& request) {
  return std::uint64_t{request.tensor_parallel};
}

Status add_attention(Ledger& ledger, const VllmGroup& group, const PlanRequest& request,
                     const VllmRules& rules) {
  const Rows rows = rows_of(group, request, rules);
  const auto entry = [&](std::uint64_t n) {
    return RowsEntry{
        .rows = n, .num_sequences = request.num_sequences, .num_ranks = ranks_of(request)};
  };
  KVARTO_CHECK_OK(add_live_rows(ledger, group.layers, entry(rows.live)));
  KVARTO_CHECK_OK(add_rows_as(ledger, group.layers, entry(rows.slack), Cause::kWindowSlack));
  return add_rows_as(ledger, group.layers, entry(rows.rounding), Cause::kBlockRounding);
}

// A recurrent state (one page), or a compressor's state kept as a window of small blocks.
Status add_state(Ledger& ledger, const VllmGroup& group, const PlanRequest& request) {
  const bool is_windowed = group.layers.kind == PageKind::kWindow;
  const auto entry =
      RowsEntry{.rows = 1, .num_sequences = request.num_sequences, .num_ranks = ranks_of(request)};
  KVARTO_CHECK_OK(add_live_rows(ledger, group.layers, entry));
  const std::uint64_t copies = group.layers.num_layers * request.num_sequences;
  const std::uint64_t held = group.blocks_per_sequence * group.own_page_bytes;
  std::uint64_t live = 0;
  for (const OwnedStream& owned : group.layers.streams) live += owned.on_rank.total();
  add_flat(ledger, group.layers, (held - live) * copies,
           is_windowed ? Cause::kWindowSlack : Cause::kSnapshots);
  return {};
}

// Everything in the pages of one group that is not its rows: alignment, unification, and the
// unused slots of its last table.
void add_pages(Ledger& ledger, const VllmPool& pool, const VllmGroup& group,
               const PlanRequest& request) {
  const std::uint64_t blocks = group.blocks_per_sequence * request.num_sequences;
  const std::uint64_t pages = blocks * group.layers.num_layers;
  // Within the V4 groups a page is aligned; elsewhere it is enlarged to the size of others.
  const Cause cause =
      pool.is_hybrid && !pool.is_compressed ? Cause::kPageUnification : Cause::kPadding;
  add_flat(ledger, group.layers, pages * (group.page_bytes - group.own_page_bytes), cause);
  if (group.num_groups != 0) {
    add_flat(ledger, group.layers, blocks * group.padded_layers * group.page_bytes,
             Cause::kLayerGrouping);
  }
}

// Compressed rows: every table takes whole blocks of the pool, whatever its page.
void add_unified_tables(Ledger& ledger, const VllmPool& pool, const PlanRequest& request) {
  for (std::size_t i = 0; i < pool.groups.size(); ++i) {
    const VllmGroup& g = pool.groups[i];
    if (g.num_groups == 0) continue;
    std::uint64_t used = 0;
    for (const VllmGroup& other : pool.groups) {
      if (is_one_table(g, other)) used += other.page_bytes * other.layers.num_layers;
    }
    const std::uint64_t blocks = g.blocks_per_sequence * request.num_sequences;
    add_flat(ledger, g.layers, blocks * (g.num_groups * pool.block_bytes - used),
             Cause::kPageUnification);
  }
}

// Bytes that one request of the whole context is charged: every block of its tables since 2026
// (group_size x page x blocks), the real layers alone before.
std::uint64_t needed_bytes(const VllmPool& pool, const VllmRules& rules) {
  if (rules.are_tokens_per_request) return pool.blocks_per_sequence * pool.block_bytes;
  std::uint64_t bytes = 0;
  for (const VllmGroup& g : pool.groups) {
    bytes += g.blocks_per_sequence * g.page_bytes * g.layers.num_layers;
  }
  return bytes;
}

void print_groups(EnginePlan& plan, const VllmPool& pool) {
  std::size_t table = 0;
  for (const VllmGroup& g : pool.groups) {
    if (g.num_groups == 0) continue;
    std::uint64_t bytes = 0;
    std::uint64_t layers = 0;
    for (const VllmGroup& other : pool.groups) {
      if (!is_one_table(g, other)) continue;
      bytes += other.page_bytes * other.layers.num_layers;
      layers += other.layers.num_layers;
    }
    for (std::uint64_t t = 0; t < g.num_groups; ++t) {
      // Tables of equal pages differ by one layer at most.
      const std::uint64_t of_table = layers / g.num_groups + (t < layers % g.num_groups ? 1 : 0);
      const std::uint64_t page = g.num_groups == 1 ? bytes : of_table * (bytes / layers);
      plan.printed[fmt::format("group_{}", table)] =
          fmt::format("block {} page {} x {} blocks", g.block_tokens, page, g.blocks_per_sequence);
      ++table;
    }
  }
}

void print_hybrid(EnginePlan& plan, const VllmPool& pool) {
  if (pool.state_padding_fraction >= 0) {
    plan.printed["attention_block"] = fmt::format("{}", pool.attention_block_tokens);
    plan.printed["mamba_padding_pct"] = fmt::format("{:.2f}", 100 * pool.state_padding_fraction);
  }
  for (const VllmGroup& g : pool.groups) {
    if (g.num_groups == 0 || g.padded_layers == 0) continue;
    std::uint64_t layers = 0;
    const std::uint64_t slots = pool.block_bytes / g.page_bytes * g.num_groups;
    layers = slots - g.padded_layers;
    plan.printed["padding"] =
        fmt::format("{} layer{}, {:.2f}%", g.padded_layers, g.padded_layers == 1 ? "" : "s",
                    100.0 * static_cast<double>(g.padded_layers) / static_cast<double>(layers));
  }
}

void set_pool_size(EnginePlan& plan, const VllmPool& pool, const PlanRequest& request,
                   const VllmRules& rules) {
  const std::uint64_t memory = request.kv_memory_bytes;
  if (memory == 0 || pool.block_bytes == 0 || pool.blocks_per_sequence == 0) return;
  const std::uint64_t blocks = memory / pool.block_bytes;
  plan.blocks = blocks;
  plan.max_concurrency =
      static_cast<double>(blocks) / static_cast<double>(pool.blocks_per_sequence);
  if (rules.are_tokens_per_request) {
    plan.tokens =
        static_cast<std::uint64_t>(*plan.max_concurrency * static_cast<double>(request.context));
  } else {
    plan.tokens = blocks / pool.num_groups * pool.smallest_block_tokens * request.context_parallel;
  }
  plan.printed["tokens"] = fmt::format("{}", *plan.tokens);
  plan.printed["gpu_blocks"] = fmt::format("{}", blocks);
  plan.printed["concurrency"] = fmt::format("{:.2f}x", *plan.max_concurrency);
  plan.printed["available_gib"] = gib(static_cast<double>(memory));
}

Result<VllmPool> pool_of(const EngineCase& engine_case, const VllmRules& rules) {
  KVARTO_TRY(std::vector<PagedLayers> layers, paged_layers(engine_case, "vllm"));
  return has_compressed_rows(layers) ? vllm_compressed_pool(engine_case, std::move(layers), rules)
                                     : vllm_pool(engine_case, std::move(layers), rules);
}

// The longest context of one request that the memory holds: what the refusal message advises.
std::uint64_t estimated_max(const EngineCase& engine_case, const VllmRules& rules) {
  PlanRequest request = engine_case.request;
  const auto fits = [&](std::uint64_t context) {
    request.context = context;
    const EngineCase shorter{.source = engine_case.source,
                             .model = engine_case.model,
                             .draft_groups = engine_case.draft_groups,
                             .request = request,
                             .profile = engine_case.profile};
    const auto pool = pool_of(shorter, rules);
    return pool && needed_bytes(*pool, rules) <= request.kv_memory_bytes;
  };
  std::uint64_t low = 0;
  std::uint64_t high = engine_case.request.context;
  while (low < high) {
    const std::uint64_t middle = low + (high - low + 1) / 2;
    if (fits(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

// States are kept in the model's own type unless its file names another (mamba_ssm_cache_dtype).
ModelSpec with_compact_states(ModelSpec model) {
  for (LayerGroup& group : model.groups) {
    for (Stream& stream : group.streams) {
      if (stream.name != "state") continue;
      for (Field& field : stream.fields) field.codec = field.packed;
    }
  }
  return model;
}

bool has_compact_states(const ModelSpec& model) {
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) {
      if (stream.name == "state" && stream.fields.front().packed != stream.fields.front().codec) {
        return true;
      }
    }
  }
  return false;
}

bool has_window(const VllmPool& pool) {
  return std::any_of(pool.groups.begin(), pool.groups.end(), [](const VllmGroup& group) {
    return group.layers.kind == PageKind::kWindow || group.layers.kind == PageKind::kChunk;
  });
}

Result<EnginePlan> plan_vllm_typed(const EngineCase& engine_case) {
  const PlanRequest& request = engine_case.request;
  const VllmRules rules = rules_of(engine_case.profile);
  KVARTO_CHECK_OK(check_gpu_types(request, "vllm"));
  KVARTO_CHECK_OK(check_heads(engine_case));
  KVARTO_TRY(const VllmPool pool, pool_of(engine_case, rules));
  CheckedSum check;
  check.add_product(pool.blocks_per_sequence, request.num_sequences);
  CheckedSum check_bytes;
  check_bytes.add_product(check.total(), pool.block_bytes);
  if (check.has_overflow() || check_bytes.has_overflow()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("engine vllm: {} sequences of {} blocks overflow 64 bits",
                            request.num_sequences, pool.blocks_per_sequence));
  }
  Ledger ledger;
  for (const VllmGroup& group : pool.groups) {
    const bool is_state = group.layers.streams.front().stream->purpose == Purpose::kState;
    KVARTO_CHECK_OK(is_state ? add_state(ledger, group, request)
                             : add_attention(ledger, group, request, rules));
    add_pages(ledger, pool, group, request);
  }
  if (pool.is_compressed) add_unified_tables(ledger, pool, request);
  if (!rules.is_v0 && pool.block_bytes != 0) {
    // Block 0 is the null block, which no sequence gets.
    ledger.add(Cause::kSpare, {.stream = "pool", .group = ~std::size_t{0}}, pool.block_bytes);
  }
  EnginePlan plan;
  KVARTO_CHECK_OK(std::move(ledger).finish(plan));
  plan.blocks = pool.blocks_per_sequence * request.num_sequences + (rules.is_v0 ? 0 : 1);
  set_pool_size(plan, pool, request, rules);
  plan.printed["needed_gib"] = gib(static_cast<double>(needed_bytes(pool, rules)));
  if (request.kv_memory_bytes != 0 && needed_bytes(pool, rules) > request.kv_memory_bytes) {
    plan.printed["estimated_max"] = fmt::format("{}", estimated_max(engine_case, rules));
  }
  if (pool.is_hybrid) {
    print_groups(plan, pool);
    print_hybrid(plan, pool);
  }
  if (rules.is_v0 && pool.block_bytes != 0) {
    plan.printed["cpu_blocks"] = fmt::format("{}", kV0SwapBytes / pool.block_bytes);
  }
  if (request.micro_batch == 0 && has_window(pool)) {
    plan.notes.push_back(fmt::format(
        "windows hold {} tokens more, those of one batch (max_num_batched_tokens, the engine's "
        "default here)",
        rules.default_batched_tokens));
  }
  if (pool.num_groups > 1 && !rules.are_tokens_per_request) {
    plan.notes.push_back(fmt::format(
        "the printed token count is blocks // {} groups: a single request can be longer",
        pool.num_groups));
  }
  return plan;
}

Result<EnginePlan> plan_vllm(const EngineCase& engine_case) {
  const ModelSpec model = with_compact_states(engine_case.model);
  KVARTO_TRY(EnginePlan plan, plan_vllm_typed({.source = engine_case.source,
                                               .model = model,
                                               .draft_groups = engine_case.draft_groups,
                                               .request = engine_case.request,
                                               .profile = engine_case.profile}));
  if (has_compact_states(engine_case.model)) {
    plan.notes.emplace_back(
        "recurrent states are kept in 16 bits, the model's own type, where the ideal counts f32: "
        "its file names no type (mamba_ssm_cache_dtype)");
  }
  return plan;
}

}  // namespace

const Engine kVllmEngine = {"vllm", kProfiles, &plan_vllm};

}  // namespace kvarto
