#include "plan/engines/vllm_pages.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"

namespace kvarto {
namespace {

constexpr std::uint64_t kDefaultBlockTokens = 16;
constexpr std::uint64_t kLatentBlockTokens = 64;  // FlashMLA accepts no other page
constexpr std::uint64_t kStateAlignment = 16;     // of a hybrid's attention block
constexpr std::uint64_t kMaxBlockTokens = std::uint64_t{1} << 24;
constexpr std::uint64_t kV0LatentElements = 640;  // V0 padded latent rows to a multiple of 128

std::uint64_t context_of_rank(const PlanRequest& request) {
  return ceil_div(request.context, request.context_parallel);
}

bool is_like(const PagedLayers& a, const PagedLayers& b) {
  return a.kind == b.kind && (a.kind == PageKind::kState || a.window == b.window) &&
         a.row_bytes == b.row_bytes;
}

// Layers of one kind: with the hybrid manager off, windows and chunks are charged as full.
std::vector<VllmGroup> make_groups(std::vector<PagedLayers> layers, const PlanRequest& request) {
  std::vector<VllmGroup> groups;
  for (PagedLayers& l : layers) {
    if (request.is_swa_full && !l.is_state()) l.kind = PageKind::kFull;
    groups.push_back({.layers = std::move(l)});
  }
  return groups;
}

struct Totals {
  std::uint64_t attention_row = 0;  // largest row of attention layers
  std::uint64_t state = 0;          // largest state
  bool has_latent = false;
};

Totals totals_of(const std::vector<VllmGroup>& groups) {
  Totals totals;
  for (const VllmGroup& g : groups) {
    if (g.layers.is_state()) {
      totals.state = std::max(totals.state, g.layers.row_bytes);
    } else {
      totals.attention_row = std::max(totals.attention_row, g.layers.row_bytes);
    }
    totals.has_latent = totals.has_latent || g.layers.is_latent;
  }
  return totals;
}

// All layers of one kind, possibly with rows of different sizes: one table, no unification.
void fill_uniform(VllmPool& pool, std::uint64_t block_tokens) {
  for (VllmGroup& g : pool.groups) {
    g.rows_per_page = g.layers.is_state()
                          ? 1
                          : std::max<std::uint64_t>(1, block_tokens / g.layers.tokens_per_row);
    g.block_tokens = g.layers.is_state() ? 0 : block_tokens;
    g.own_page_bytes = g.rows_per_page * g.layers.row_bytes;
    g.page_bytes = g.own_page_bytes;
    pool.block_bytes += g.page_bytes * g.layers.num_layers;
  }
  pool.num_groups = 1;
}

// Kinds differ: pages become equal, layers are dealt into tables of `group_size`.
void fill_hybrid(VllmPool& pool, std::uint64_t block_tokens, std::uint64_t page_bytes) {
  std::vector<std::size_t> kind_of(pool.groups.size());  // the first group with such pages
  std::vector<std::uint64_t> layers_of(pool.groups.size(), 0);
  for (std::size_t i = 0; i < pool.groups.size(); ++i) {
    std::size_t kind = 0;
    while (kind < i && !is_like(pool.groups[kind].layers, pool.groups[i].layers)) ++kind;
    kind_of[i] = kind;
    layers_of[kind] += pool.groups[i].layers.num_layers;
  }
  std::vector<std::uint64_t> counts;
  for (const std::uint64_t n : layers_of) {
    if (n != 0) counts.push_back(n);
  }
  const auto [smallest, largest] = std::minmax_element(counts.begin(), counts.end());
  const bool is_near = 2 * *largest < 3 * *smallest;  // under 1.5 times
  const std::uint64_t group_size = is_near ? *largest : *smallest;
  for (std::size_t i = 0; i < pool.groups.size(); ++i) {
    VllmGroup& g = pool.groups[i];
    g.page_bytes = page_bytes;
    if (g.layers.is_state()) {
      g.rows_per_page = 1;
    } else {
      g.rows_per_page = std::max<std::uint64_t>(1, page_bytes / g.layers.row_bytes);
      const std::uint64_t unit = std::max<std::uint64_t>(1, block_tokens / g.layers.tokens_per_row);
      if (g.rows_per_page > unit) g.rows_per_page = g.rows_per_page / unit * unit;
      g.block_tokens = g.rows_per_page * g.layers.tokens_per_row;
    }
    g.own_page_bytes = g.rows_per_page * g.layers.row_bytes;
    if (kind_of[i] == i) {
      g.num_groups = ceil_div(layers_of[i], group_size);
      g.padded_layers = g.num_groups * group_size - layers_of[i];
      pool.num_groups += g.num_groups;
    } else {
      g.num_groups = 0;  // shares the tables of the first of its kind
    }
  }
  pool.block_bytes = page_bytes * group_size;
}

// Draft tokens in flight lengthen the rings of convolutions by a row each.
void lengthen_rings(std::vector<VllmGroup>& groups, std::uint64_t draft_tokens) {
  for (VllmGroup& g : groups) {
    if (!g.layers.is_state()) continue;
    for (const OwnedStream& owned : g.layers.streams) {
      if (owned.stream->ring_rows == 0) continue;
      g.layers.row_bytes += owned.on_rank.total() / owned.stream->ring_rows * draft_tokens;
    }
  }
}

// V0 knew neither states nor windows.
Status charge_in_full(VllmPool& pool) {
  for (VllmGroup& g : pool.groups) {
    if (g.layers.is_state()) {
      return fail(ErrorCode::kUnsupported,
                  "engine vllm, profile v0: recurrent layers, which it "
                  "sizes outside its block pool");
    }
    g.layers.kind = PageKind::kFull;
  }
  return {};
}

void pad_latent_rows(VllmPool& pool) {
  for (VllmGroup& g : pool.groups) {
    if (!g.layers.is_latent) continue;
    const std::uint64_t elements = g.layers.streams.front().group->query.qk_dim;
    const std::uint64_t padded = round_up(elements, kV0LatentElements);
    if (elements == 0 || padded > kV0LatentElements) continue;
    const std::uint64_t page = g.own_page_bytes / elements * padded;
    pool.block_bytes += (page - g.page_bytes) * g.layers.num_layers;
    g.page_bytes = page;
  }
}

}  // namespace

std::uint64_t vllm_blocks(const VllmGroup& group, const PlanRequest& request,
                          const VllmRules& rules) {
  const std::uint64_t context = context_of_rank(request);
  const std::uint64_t batched = batched_tokens(request, rules);
  switch (group.layers.kind) {
    case PageKind::kState:
      // One live state, and one more where prefixes are cached (align mode). Older versions kept
      // one a draft token; logs of 2026 with two of them show none.
      return 1 + (rules.are_tokens_per_request ? 0 : request.draft_tokens) +
             (request.is_prefix_caching ? 1 : 0);
    case PageKind::kWindow:
      return ceil_div(std::min(group.layers.window - 1 + batched, context), group.block_tokens) + 1;
    case PageKind::kChunk:
      return ceil_div(std::min(group.layers.window + batched, context), group.block_tokens);
    case PageKind::kFull:
      break;
  }
  return ceil_div(context, group.block_tokens);
}

Result<VllmPool> vllm_pool(const EngineCase& engine_case, std::vector<PagedLayers> layers,
                           const VllmRules& rules) {
  const PlanRequest& request = engine_case.request;
  if (request.block_size > kMaxBlockTokens) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("engine vllm: block size {}, expected at most {}", request.block_size,
                            kMaxBlockTokens));
  }
  VllmPool pool;
  pool.groups = make_groups(std::move(layers), request);
  if (pool.groups.empty()) return pool;
  lengthen_rings(pool.groups, request.draft_tokens);
  const Totals totals = totals_of(pool.groups);
  if (rules.is_v0) KVARTO_CHECK_OK(charge_in_full(pool));
  std::uint64_t block_tokens = request.block_size;
  if (block_tokens == 0) {
    const bool is_flash_mla = totals.has_latent && !rules.is_v0;
    block_tokens = is_flash_mla ? kLatentBlockTokens : kDefaultBlockTokens;
  }
  const bool is_one_kind =
      std::all_of(pool.groups.begin(), pool.groups.end(), [&](const VllmGroup& g) {
        return g.layers.kind == pool.groups.front().layers.kind &&
               (g.layers.kind == PageKind::kFull || is_like(g.layers, pool.groups.front().layers));
      });
  pool.is_hybrid = !is_one_kind;
  if (is_one_kind) {
    fill_uniform(pool, block_tokens);
  } else {
    if (totals.state != 0 && totals.attention_row != 0) {
      // The kernel's own block: as asked for, else FlashMLA's or the default.
      const std::uint64_t unit = request.block_size != 0 ? request.block_size
                                 : totals.has_latent     ? kLatentBlockTokens
                                                         : kStateAlignment;
      block_tokens =
          std::max(block_tokens, unit * ceil_div(totals.state, unit * totals.attention_row));
    }
    const std::uint64_t page = std::max(block_tokens * totals.attention_row, totals.state);
    fill_hybrid(pool, block_tokens, page);
    if (totals.state != 0) {
      pool.state_padding_fraction =
          static_cast<double>(page - totals.state) / static_cast<double>(totals.state);
    }
  }
  pool.attention_block_tokens = block_tokens;
  pool.smallest_block_tokens = block_tokens;
  bool is_counted = false;
  for (VllmGroup& g : pool.groups) {
    g.blocks_per_sequence = vllm_blocks(g, request, rules);
    if (pool.is_hybrid) {
      pool.blocks_per_sequence += g.num_groups * g.blocks_per_sequence;
    } else if (!is_counted) {
      pool.blocks_per_sequence = g.blocks_per_sequence;  // one table serves all layers
      is_counted = true;
    }
  }
  if (rules.is_v0) pad_latent_rows(pool);
  return pool;
}

std::uint64_t batched_tokens(const PlanRequest& request, const VllmRules& rules) {
  return request.micro_batch == 0 ? rules.default_batched_tokens : request.micro_batch;
}

}  // namespace kvarto
