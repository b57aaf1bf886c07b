// What the readers of one GGUF model share: its keys, how many blocks it has, which tensors exist.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_architectures.h"
#include "kvarto/model_spec.h"
#include "spec/keys.h"

namespace kvarto {

// The names of all tensors of a model, sorted. Views: lives as long as the headers' bytes.
class GgufTensorNames {
 public:
  explicit GgufTensorNames(std::span<const GgufHeader* const> parts);

  [[nodiscard]] bool empty() const { return names_.empty(); }
  [[nodiscard]] bool has(std::string_view name) const;
  // Whether block `block` has a tensor whose name goes on with `rest` ("" = any).
  [[nodiscard]] bool has_in_block(std::uint32_t block, std::string_view rest) const;

 private:
  std::vector<std::string_view> names_;
};

struct GgufFrame {
  Keys keys;  // of the architecture, without its prefix
  GgufArchitecture rule;
  const GgufTensorNames* tensors = nullptr;
  std::uint32_t num_blocks = 0;  // layers and drafts
  std::uint32_t num_layers = 0;  // without drafts
  std::int64_t hidden_size = 0;
  std::vector<std::int64_t> heads;     // one a block
  std::vector<std::int64_t> kv_heads;  // one a block; 0 = no attention
  std::vector<std::string> notes;
};

// Reads `key` for every block: one number (or bool) for all, or a list with one a block (a list of
// the layers alone is continued with its last entry). Absent: `fallback`.
// Errors: kCorruptData for another kind of value, one out of [0, max], or another length.
[[nodiscard]] Result<std::vector<std::int64_t>> read_per_block(const GgufFrame& frame,
                                                               std::string_view key,
                                                               std::int64_t max,
                                                               std::int64_t fallback);

// Window or chunk of a block in tokens; 0 = none.
struct GgufWindow {
  std::uint64_t window = 0;
  std::uint64_t chunk = 0;
};
[[nodiscard]] Result<std::vector<GgufWindow>> read_gguf_windows(GgufFrame& frame);

// The recurrent state that every stateful block of the model has. gguf_states.cc.
[[nodiscard]] Result<LayerSpec> read_gguf_state(const GgufFrame& frame);

// Attention of all blocks; blocks without KV heads are left as they are. gguf_attention.cc.
[[nodiscard]] Status read_gguf_attention(GgufFrame& frame, std::vector<LayerSpec>& blocks);

[[nodiscard]] inline std::uint32_t to_u32(std::int64_t value) {
  return static_cast<std::uint32_t>(value);
}

}  // namespace kvarto
