// The model types of plain, windowed and chunked attention, as data: what their config classes
// supply where a file is silent, and which layers have a window.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kvarto {

// Which layers of a type have a window when the file has no list of layer types.
struct WindowRule {
  enum class Kind : std::uint8_t {
    kNone,       // no layer; the class does not read `sliding_window`
    kEvery,      // every layer, if `sliding_window` is not null
    kPattern,    // all but every `pattern`-th: full where (i + 1) % pattern == 0
    kFirstFull,  // full where i % pattern == 0
    kLastFull,   // full where (layers - 1 - i) % pattern == 0
    kFromLayer,  // from `max_window_layers` on, if `use_sliding_window` (Qwen2)
    kIfUsed,     // every layer, if `use_sliding_window` (Qwen3-MoE)
    kNoRope,     // the layers without RoPE, if `use_sliding_window` (SmolLM3)
  };
  Kind kind = Kind::kNone;
  std::int64_t window = 0;   // the class's `sliding_window`; 0 = null
  std::int64_t pattern = 0;  // kPattern, kFirstFull, kLastFull; kFromLayer: `max_window_layers`
};

inline constexpr std::int64_t kAsQueryHeads = 0;  // kv_heads: one for each query head if absent
inline constexpr std::int64_t kOneForEach = -1;   // kv_heads: the class has no such key
inline constexpr std::int64_t kDerived = 0;       // head_dim: hidden size / query heads

// Defaults of one config class. 0 in layers, hidden or heads = no default: the key is required.
struct DenseType {
  std::string_view model_type;
  std::string_view config_class;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = kAsQueryHeads;
  std::int64_t head_dim = kDerived;
  std::int64_t max_context = 0;
  WindowRule windows;
};

// All types, sorted by name.
[[nodiscard]] std::span<const DenseType> dense_types();

// The row of `model_type`. Requires: there is one.
[[nodiscard]] const DenseType& dense_type(std::string_view model_type);

}  // namespace kvarto
