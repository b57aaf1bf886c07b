// What tokens are called: those that end a text, and pairs of names that merge.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/keyed_index.h"
#include "kvarto/result.h"
#include "kvarto/vocabulary.h"

namespace kvarto {

// Adds to the ends the control and user-defined tokens whose names say that a turn or text is over,
// and `eos`; each once.
void add_ends_by_name(Vocabulary& vocabulary);

// Finds the tokens of merges.
class MergeReader {
 public:
  // The vocabulary's tokens must be complete.
  explicit MergeReader(const Vocabulary& vocabulary);

  // Errors: kCorruptData if one of the two, or both together, is no token; `key` names the merge.
  [[nodiscard]] Result<TokenMerge> merge(std::string_view left, std::string_view right,
                                         std::string_view key) const;
  // The same of "left right".
  [[nodiscard]] Result<TokenMerge> merge(std::string_view both, std::string_view key) const;
  [[nodiscard]] std::optional<TokenId> find(std::string_view token) const {
    return tokens_.find(token);
  }

 private:
  [[nodiscard]] Result<TokenId> token_of(std::string_view name, std::string_view key) const;

  const Vocabulary& vocabulary_;
  NameIndex tokens_;
};

}  // namespace kvarto
