// Words for architectures ("gqa:8", "mla:512+64"), and the layers they stand for.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/plan.h"
#include "kvarto/result.h"

namespace kvarto {

enum class ArchitectureKind : std::uint8_t {
  kMha,
  kMqa,
  kGqa,
  kMla,
  kDsa,
  kCsa,
  kHca,
  kMultilevel,
  kDynamic,
  kQuest,
  kMoba,
  kNsa,
  kSwa,
};

// A parsed word. Numbers that the word leaves open are 0.
struct ArchitectureWord {
  ArchitectureKind kind{};
  std::string_view name;     // canonical, without numbers
  std::uint64_t first = 0;   // G, L, K, g, budget or w
  std::uint64_t second = 0;  // R of mla, w of multilevel
  double ratio = 0;          // of dynamic
  std::vector<std::string> notes;
};

// Errors: kInvalidArgument naming the word and what was expected.
[[nodiscard]] Result<ArchitectureWord> parse_architecture(std::string_view word);

// Heads of one layer, as the architectures with K and V cache them.
struct LayerHeads {
  std::uint32_t q_heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t qk_dim = 0;
  std::uint32_t v_dim = 0;
  // Latent row and indexer, where the layer has them; 0 = the best-known model's.
  std::uint32_t latent_dim = 0;
  std::uint32_t rope_dim = 0;
  std::uint32_t index_heads = 0;
  std::uint32_t index_dim = 0;
};

// A layer of the architecture and its word with all numbers that the layer's size depends on.
struct ArchitectureLayer {
  LayerSpec layer;
  std::string canonical;
};

// Errors: kInvalidArgument naming numbers that do not go together.
[[nodiscard]] Result<ArchitectureLayer> architecture_layer(const ArchitectureWord& word,
                                                           const LayerHeads& heads,
                                                           const WhatIfDefaults& defaults);

}  // namespace kvarto
