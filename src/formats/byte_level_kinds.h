// How the families of byte-level vocabularies split text: what `tokenizer.ggml.pre` names.

#pragma once

#include <span>
#include <string_view>

namespace kvarto {

// One way of splitting, and the names that files give it.
struct ByteLevelKind {
  std::span<const std::string_view> names;
  std::span<const std::string_view> patterns;  // applied one after the other
  bool takes_whole_words = false;
  bool adds_bos = false;  // where the file does not say
};

// Null if no kind has the name. "" is a file that names none.
[[nodiscard]] const ByteLevelKind* byte_level_kind(std::string_view name);

// What GPT-2 splits by: contractions, words with the space before them, numbers, signs, spaces.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace kvarto
