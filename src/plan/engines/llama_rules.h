// What llama.cpp and its relatives allocate: one tensor per layer for K and one for V, of cells of
// one token. The relatives differ in a few rules, which are data here.
//
// Sources: ggml-org/llama.cpp src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp,
// llama-kv-cache-dsa.cpp and llama-kv-cache-dsv4.cpp; ikawrakow/ik_llama.cpp src/llama.cpp; logs of
// both. The padding of quantised tensors: ggml-cuda's buffer type, get_alloc_size
// (MATRIX_ROW_PADDING 512) and the buffer alignment of 128 bytes.

#pragma once

#include <cstdint>
#include <string_view>

#include "plan/engine.h"

namespace kvarto {

// How a latent row is kept.
enum class LatentForm : std::uint8_t {
  kFullHeads,         // expanded K and V of every query head: before MLA was implemented
  kRowAndValue,       // the row, and its latent part a second time as V
  kRow,               // the row alone; V is a view of it
  kRowAndTransposed,  // the row, and an f16 transposed copy of its latent part
};

struct LlamaRules {
  // Cells of a cache are a multiple of this.
  std::uint64_t cell_multiple = 256;
  std::uint64_t window_cell_multiple = 256;
  // Windowed layers have a cache of their own size; else they get every cell.
  bool has_window_cache = true;
  LatentForm latent = LatentForm::kRow;
  // Index keys and compressed rows have caches; else such models are refused.
  bool has_sparse_caches = true;
  // One ggml row of the K tensor is one head (ik_llama.cpp), not all heads of a token, and V is
  // one long row; matters for the padding of quantised tensors.
  bool is_row_one_head = false;
  // Sizes are shown as ollama shows them: one decimal.
  bool has_one_decimal = false;
};

// Plans a case under the rules. Errors: kUnsupported for streams or options that the engine does
// not have, kInvalidArgument for types that it does not accept.
[[nodiscard]] Result<EnginePlan> plan_llama(const EngineCase& engine_case, std::string_view engine,
                                            const LlamaRules& rules);

}  // namespace kvarto
