// The groups of DeepSeek-V4 in vLLM. The compressed rows and their index keys of all layers are one
// group, whose page is the pool's block; windows and compressor states are groups of their own and
// take whole blocks of the pool, however small their pages are.
//
// Source: vllm-project/vllm vllm/models/deepseek_v4, issue 54703 (the five group pages).

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "plan/engines/vllm_pages.h"

namespace kvarto {
namespace {

constexpr std::uint64_t kBlockTokens = 256;  // of compressed rows
constexpr std::uint64_t kWindowTokens = 64;
constexpr std::uint64_t kAlignBytes = 576;
// Tokens that one block of a compressor's state spans, by whether its groups overlap.
constexpr std::uint64_t kOverlapStateTokens = 4;
constexpr std::uint64_t kStateTokens = 8;

// Rows of a compressor's ring: one a token.
struct Ring {
  std::uint64_t rows = 0;
  std::uint64_t block_rows = 0;
};

Ring ring_of(const Stream& state) {
  const bool has_overlap = state.truncate.kind == Truncate::Kind::kSnapshot;
  return {std::max<std::uint64_t>(1, state.ring_rows),
          has_overlap ? kOverlapStateTokens : kStateTokens};
}

VllmGroup page_of(PagedLayers layers) {
  VllmGroup group;
  const OwnedStream& first = layers.streams.front();
  if (layers.is_state()) {
    const Ring ring = ring_of(*first.stream);
    // A state is a window of `ring.rows` rows, one a token.
    layers.kind = PageKind::kWindow;
    layers.window = ring.rows;
    group.rows_per_page = ring.block_rows;
    group.block_tokens = ring.block_rows;
    group.own_page_bytes = 0;
    group.page_bytes = 0;
    for (const OwnedStream& owned : layers.streams) {
      const std::uint64_t bytes = owned.on_rank.total() / ring.rows * ring.block_rows;
      group.own_page_bytes += bytes;
      group.page_bytes += round_up(bytes, kAlignBytes);
    }
  } else {
    group.block_tokens = layers.kind == PageKind::kWindow ? kWindowTokens : kBlockTokens;
    group.rows_per_page = std::max<std::uint64_t>(1, group.block_tokens / layers.tokens_per_row);
    group.own_page_bytes = group.rows_per_page * layers.row_bytes;
    group.page_bytes = round_up(group.own_page_bytes, kAlignBytes);
  }
  group.layers = std::move(layers);
  return group;
}

}  // namespace

bool is_one_table(const VllmGroup& a, const VllmGroup& b) {
  return a.layers.kind == b.layers.kind && a.block_tokens == b.block_tokens &&
         (a.layers.kind == PageKind::kFull || a.layers.window == b.layers.window);
}

Result<VllmPool> vllm_compressed_pool(const EngineCase& engine_case,
                                      std::vector<PagedLayers> layers, const VllmRules& rules) {
  const PlanRequest& request = engine_case.request;
  if (rules.is_v0) {
    return fail(ErrorCode::kUnsupported, "engine vllm, profile v0: it has no compressed rows");
  }
  if (request.block_size != 0 && request.block_size != kBlockTokens) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("engine vllm: block size {}, expected {} for compressed rows",
                            request.block_size, kBlockTokens));
  }
  VllmPool pool;
  pool.is_hybrid = true;
  pool.is_compressed = true;
  pool.attention_block_tokens = kBlockTokens;
  pool.smallest_block_tokens = kOverlapStateTokens;
  for (PagedLayers& l : layers) pool.groups.push_back(page_of(std::move(l)));
  for (const VllmGroup& g : pool.groups) {
    if (g.layers.kind == PageKind::kFull) {
      pool.block_bytes += g.page_bytes * g.layers.num_layers;
    }
  }
  if (pool.block_bytes == 0) {
    return fail(ErrorCode::kUnsupported,
                "engine vllm: windows without compressed rows in any layer");
  }
  for (std::size_t i = 0; i < pool.groups.size(); ++i) {
    VllmGroup& g = pool.groups[i];
    g.blocks_per_sequence = vllm_blocks(g, request, rules);
    if (g.layers.streams.front().stream->purpose == Purpose::kState) {
      // A ring is there whole, however short the sequence.
      g.blocks_per_sequence =
          std::max(g.blocks_per_sequence, ceil_div(g.layers.window, g.rows_per_page));
    }
    bool is_first = true;
    std::uint64_t table_bytes = 0;
    for (std::size_t j = 0; j < pool.groups.size(); ++j) {
      if (!is_one_table(g, pool.groups[j])) continue;
      is_first = is_first && j >= i;
      table_bytes += pool.groups[j].page_bytes * pool.groups[j].layers.num_layers;
    }
    // Layers are dealt into as many tables as are needed for a table's page to fit the block.
    g.num_groups = is_first ? ceil_div(table_bytes, pool.block_bytes) : 0;
    pool.num_groups += g.num_groups;
    pool.blocks_per_sequence += g.num_groups * g.blocks_per_sequence;
  }
  return pool;
}

}  // namespace kvarto
