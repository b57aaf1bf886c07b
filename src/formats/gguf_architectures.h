// What llama.cpp's architectures have in common with none but themselves: rules that a GGUF file
// does not carry, because they stand in the loader of its architecture.

#pragma once

#include <cstdint>
#include <string_view>

namespace kvarto {

// Which layers have a window, where the file has no per-layer list.
struct GgufWindowRule {
  enum class Kind : std::uint8_t {
    kNone,    // none, whatever `attention.sliding_window` says
    kPeriod,  // all but one of every `period`
    kChunk,   // all but one of every `period` have a chunk, not a window
  };
  Kind kind = Kind::kNone;
  std::uint32_t period = 0;
  bool is_full_first = false;        // the full layer is the first of its period, not the last
  std::uint64_t default_window = 0;  // tokens, where the key is absent; 0 = no window then
  bool is_required = false;          // the key must be there
};

// Which layers keep a recurrent state, and of which kind.
struct GgufStateRule {
  enum class Place : std::uint8_t {
    kNowhere,
    kNoHeads,   // layers with 0 KV heads
    kAlone,     // layers with 0 KV heads and no feed-forward network
    kInterval,  // all but every `full_attention_interval`-th layer
    kEvery,     // all layers, instead of attention
    kBeside,    // all layers, beside attention
  };
  enum class Kind : std::uint8_t {
    kByKeys,  // what the keys that are present describe
    kMamba,
    kMamba2,
    kDeltaNet,
    kKda,
    kShortConv,
    kRwkv,
  };
  Place place = Place::kNowhere;
  Kind kind = Kind::kByKeys;
};

struct GgufArchitecture {
  std::string_view name;        // general.architecture
  std::string_view model_type;  // as config.json names it
  GgufWindowRule window;
  GgufStateRule state;
  bool is_compressed = false;               // DeepSeek-V4
  std::uint32_t num_kv_layers = 0;          // layers that own K and V where no key says so; 0 = all
  std::uint32_t default_window_layers = 0;  // the depth that the default window is for; 0 = any
  bool has_empty_layers = false;            // 0 KV heads are a layer without attention
};

// Null for an architecture that has no entry.
[[nodiscard]] const GgufArchitecture* gguf_architecture(std::string_view name);

// True for models that keep no cache between tokens: encoders and projectors.
[[nodiscard]] bool is_gguf_encoder(std::string_view name);

}  // namespace kvarto
