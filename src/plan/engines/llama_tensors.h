// The tensors of a llama.cpp-like cache: which there are, and how many bytes each takes.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/engines/llama_rules.h"
#include "plan/ledger.h"

namespace kvarto {

// The caches of such an engine, by the line of the log that sums them.
enum class LlamaCache : std::uint8_t { kBase, kWindow, kCompressed, kIndexer };

enum class LlamaSide : std::uint8_t { kKey, kValue };

// One tensor, present in `layers` layers with equal size.
struct LlamaTensor {
  LlamaCache cache{};
  LlamaSide side{};
  LedgerSubject subject;
  std::uint64_t layers = 0;
  Codec codec = Codec::kF16;
  // Elements: of one head, heads of one token.
  std::uint64_t head_elements = 0;
  std::uint64_t heads = 0;
  std::uint64_t cells = 0;           // of all sequences and streams
  std::uint64_t live_cells = 0;      // that hold rows at the planned context
  std::uint64_t window_cells = 0;    // beyond live ones, needed by window and micro-batch
  std::uint64_t extra_heads_of = 0;  // full heads of a latent: elements of the latent row, else 0
  bool is_second_copy = false;       // V of a latent that K holds already
  bool is_widened = false;           // V of a narrower layer, padded to the widest
  std::uint64_t own_elements = 0;    // is_widened: elements the layer itself needs

  [[nodiscard]] std::uint64_t cell_bytes() const;
  [[nodiscard]] std::uint64_t bytes() const { return cells * cell_bytes(); }
};

// Whether all sequences share one stream of `context` cells (-kvu).
[[nodiscard]] bool is_one_pool(const EngineCase& engine_case);

// The types that the request names, as ggml types. "auto" is f16, the engines' default.
struct LlamaTypes {
  Codec key = Codec::kF16;
  Codec value = Codec::kF16;
};
[[nodiscard]] Result<LlamaTypes> llama_types(const EngineCase& engine_case,
                                             std::string_view engine);

// All tensors of the owned streams, recurrent states apart. Errors: as plan_llama().
[[nodiscard]] Result<std::vector<LlamaTensor>> llama_tensors(const EngineCase& engine_case,
                                                             std::string_view engine,
                                                             const LlamaRules& rules);

// Bytes that a CUDA buffer adds to one tensor of one layer: the row completed to 512 elements
// where it is quantised, and the tensor rounded up to 128 bytes.
[[nodiscard]] std::uint64_t cuda_padding_bytes(const LlamaTensor& tensor, const LlamaRules& rules);

}  // namespace kvarto
