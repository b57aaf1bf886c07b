#include "spec/families/layer_list.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvarto {
namespace {

using Kinds = std::vector<LayerContent>;

std::string expected_words(std::span<const LayerWord> words) {
  std::string text = "one of";
  for (const LayerWord& word : words) text += fmt::format(" {}", word.word);
  return text;
}

Status check_length(const Keys& keys, std::string_view key, std::size_t found,
                    std::size_t num_layers) {
  if (num_layers == 0 && found >= 1 && found <= static_cast<std::size_t>(kMaxLayers)) return {};
  if (num_layers != 0 && found == num_layers) return {};
  return keys.bad(key, fmt::format("{} entries", found),
                  num_layers == 0 ? fmt::format("1 to {} entries", kMaxLayers)
                                  : fmt::format("{}, one a layer", num_layers));
}

Result<LayerContent> kind_of(const Keys& keys, std::string_view key, std::size_t layer,
                             std::string_view word, std::span<const LayerWord> words) {
  const auto match = std::find_if(words.begin(), words.end(),
                                  [&](const LayerWord& known) { return known.word == word; });
  if (match != words.end()) return match->kind;
  Value found;
  found.data = std::string(word);
  return keys.bad(fmt::format("{}[{}]", key, layer), describe(found), expected_words(words));
}

}  // namespace

Result<std::optional<Kinds>> read_layer_words(const Keys& keys, std::string_view key,
                                              std::size_t num_layers,
                                              std::span<const LayerWord> words) {
  KVARTO_TRY(const auto list, keys.strings(key));
  if (!list) return std::optional<Kinds>();
  KVARTO_CHECK_OK(check_length(keys, key, list->size(), num_layers));
  Kinds kinds;
  for (const std::string& word : *list) {
    KVARTO_TRY(const LayerContent kind, kind_of(keys, key, kinds.size(), word, words));
    kinds.push_back(kind);
  }
  return std::optional<Kinds>(std::move(kinds));
}

Result<std::optional<Kinds>> read_layer_letters(const Keys& keys, std::string_view key,
                                                std::size_t num_layers,
                                                std::span<const LayerWord> letters) {
  KVARTO_TRY(const auto text, keys.string(key));
  if (!text) return std::optional<Kinds>();
  KVARTO_CHECK_OK(check_length(keys, key, text->size(), num_layers));
  Kinds kinds;
  for (const char& letter : *text) {
    KVARTO_TRY(const LayerContent kind,
               kind_of(keys, key, kinds.size(), std::string_view(&letter, 1), letters));
    kinds.push_back(kind);
  }
  return std::optional<Kinds>(std::move(kinds));
}

Result<std::optional<std::vector<std::uint32_t>>> read_layer_numbers(const Keys& keys,
                                                                     std::string_view key,
                                                                     std::size_t num_layers,
                                                                     std::uint32_t first) {
  using Numbers = std::vector<std::uint32_t>;
  const auto last = static_cast<std::int64_t>(first + num_layers) - 1;
  KVARTO_TRY(const auto list, keys.integers(key, first, last));
  if (!list) return std::optional<Numbers>();
  Numbers numbers;
  for (std::int64_t number : *list) {
    numbers.push_back(static_cast<std::uint32_t>(number - first));
  }
  std::sort(numbers.begin(), numbers.end());
  const auto twice = std::adjacent_find(numbers.begin(), numbers.end());
  if (twice != numbers.end()) {
    return keys.bad(key, fmt::format("layer {} twice", *twice + first), "distinct layers");
  }
  return std::optional<Numbers>(std::move(numbers));
}

}  // namespace kvarto
