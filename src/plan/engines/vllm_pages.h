// How vLLM turns layers into pages, groups and blocks. One block of the pool holds `group_size`
// pages; every group of layers draws its blocks from the same pool.
//
// Source: vllm-project/vllm vllm/v1/kv_cache_interface.py and vllm/v1/core/kv_cache_utils.py.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/engines/paged_layers.h"

namespace kvarto {

// The rules that changed between versions.
struct VllmRules {
  std::uint64_t default_batched_tokens = 8192;  // max_num_batched_tokens
  bool are_tokens_per_request = true;           // "GPU KV cache size" = concurrency x max_model_len
  bool is_v0 = false;                           // no hybrids, latent rows padded to 640 elements
};

// Tokens that the engine may have in flight beside a window: max_num_batched_tokens.
[[nodiscard]] std::uint64_t batched_tokens(const PlanRequest& request, const VllmRules& rules);

// One kind of layers and its pages. Blocks and rows are those of one sequence.
struct VllmGroup {
  PagedLayers layers;
  std::uint64_t block_tokens = 0;  // tokens (rows x tokens_per_row) a page spans; 0 for states
  std::uint64_t rows_per_page = 0;
  std::uint64_t page_bytes = 0;           // of one layer, unified
  std::uint64_t own_page_bytes = 0;       // rows alone, before unification
  std::uint64_t num_groups = 1;           // block tables that these layers need
  std::uint64_t padded_layers = 0;        // empty slots of the last table
  std::uint64_t blocks_per_sequence = 0;  // of one block table
};

struct VllmPool {
  std::vector<VllmGroup> groups;
  std::uint64_t block_bytes = 0;  // of the pool, all layers of one group
  std::uint64_t num_groups = 0;
  std::uint64_t blocks_per_sequence = 0;  // all block tables
  std::uint64_t attention_block_tokens = 0;
  std::uint64_t smallest_block_tokens = 0;
  bool is_hybrid = false;
  bool is_compressed = false;          // every table takes whole blocks, whatever its page
  double state_padding_fraction = -1;  // of a state's page; < 0 = no states
};

// Blocks of one table that a sequence of `context` tokens needs at its peak.
[[nodiscard]] std::uint64_t vllm_blocks(const VllmGroup& group, const PlanRequest& request,
                                        const VllmRules& rules);

[[nodiscard]] Result<VllmPool> vllm_pool(const EngineCase& engine_case,
                                         std::vector<PagedLayers> layers, const VllmRules& rules);

// Whether the layers of two groups with compressed rows are dealt into the same block tables.
[[nodiscard]] bool is_one_table(const VllmGroup& a, const VllmGroup& b);

// The DeepSeek-V4 groups (vllm/models/deepseek_v4): pages of 256 tokens for compressed rows, of 64
// for windows, of 4 and 8 for compressor states, each layer's part a multiple of 576 bytes.
[[nodiscard]] Result<VllmPool> vllm_compressed_pool(const EngineCase& engine_case,
                                                    std::vector<PagedLayers> layers,
                                                    const VllmRules& rules);

}  // namespace kvarto
