// Finds special tokens in a text: what lies between them is text for the tokenizer.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kvarto/result.h"
#include "kvarto/vocabulary.h"

namespace kvarto {

// A token, or text of at least one byte.
struct TextFragment {
  std::optional<TokenId> token;
  std::string_view text;
};

// Const methods may be called concurrently. The vocabulary must outlive it.
class SpecialTokens {
 public:
  // Errors: kCorruptData for a special token of more than kMaxSpecialBytes.
  [[nodiscard]] static Result<SpecialTokens> create(const Vocabulary& vocabulary);

  // The leftmost, and of several there the longest special token, and so on behind it.
  // User-defined tokens are always found, control tokens if `parses_control`.
  // O(bytes of text x bytes of the longest special token).
  [[nodiscard]] std::vector<TextFragment> partition(std::string_view text,
                                                    bool parses_control) const;

 private:
  struct Entry {
    std::string_view text;
    TokenId token = 0;
    bool is_control = false;
    bool trims_left = false;
    bool trims_right = false;
  };
  [[nodiscard]] const Entry* longest_at(std::string_view rest, bool parses_control) const;

  std::vector<Entry> entries_;              // sorted by text
  std::array<std::uint32_t, 257> first_{};  // of the entries that begin with a byte
};

// Published ones stay below 100 bytes.
inline constexpr std::size_t kMaxSpecialBytes = 1024;

}  // namespace kvarto
