// Per-layer lists of a configuration: words, letters and layer numbers that say what each layer is.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "spec/keys.h"

namespace kvarto {

// What one layer is made of, as far as its cache is concerned.
enum class LayerContent : std::uint8_t {
  kAttention,
  kSparse,  // attention that reads by a selection
  kState,   // recurrence or convolution
  kBoth,    // attention and a recurrence side by side
  kNone,    // nothing cached (feed-forward layers)
};

struct LayerWord {
  std::string_view word;
  LayerContent kind{};
};

// The list `key` as kinds; nullopt if absent. Errors: kCorruptData for a word that is not in
// `words`, and for a length other than `num_layers` (0 = any length but none).
[[nodiscard]] Result<std::optional<std::vector<LayerContent>>> read_layer_words(
    const Keys& keys, std::string_view key, std::size_t num_layers,
    std::span<const LayerWord> words);

// The same for a string with one letter a layer ("M-M*").
[[nodiscard]] Result<std::optional<std::vector<LayerContent>>> read_layer_letters(
    const Keys& keys, std::string_view key, std::size_t num_layers,
    std::span<const LayerWord> letters);

// The list `key` of distinct layer numbers in [first, first + num_layers), as zero-based indices in
// ascending order; nullopt if absent.
[[nodiscard]] Result<std::optional<std::vector<std::uint32_t>>> read_layer_numbers(
    const Keys& keys, std::string_view key, std::size_t num_layers, std::uint32_t first);

}  // namespace kvarto
