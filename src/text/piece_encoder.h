// The tokens of one piece of text: what a vocabulary's rule makes of it.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/keyed_index.h"
#include "kvarto/result.h"
#include "kvarto/vocabulary.h"
#include "text/merge.h"

namespace kvarto {

// Const methods may be called concurrently. Vocabulary and spellings must outlive it.
class PieceEncoder {
 public:
  // `spellings` are the bytes of text that tokens match: the tokens themselves, or the bytes that
  // those of a byte-level vocabulary spell. Requires: one for each token; merges and special ids
  // name tokens.
  PieceEncoder(const Vocabulary& vocabulary, const std::vector<std::string>& spellings);

  // Appends the tokens of `piece`. Requires: valid UTF-8, at most 2^30 bytes.
  // Errors: kCorruptData if the vocabulary has no token for a byte.
  Status append(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  [[nodiscard]] Result<std::vector<Symbol>> byte_symbols(std::string_view piece) const;
  [[nodiscard]] Result<std::vector<Symbol>> letter_symbols(std::string_view piece) const;
  void join_ranked(std::vector<Symbol>& symbols) const;
  void join_scored(std::string_view piece, std::vector<Symbol>& symbols) const;
  Status append_spelled(std::string_view text, std::vector<TokenId>& out) const;
  [[nodiscard]] bool spells_all(std::string_view text) const;
  [[nodiscard]] tl::unexpected<Error> no_token(unsigned char byte) const;

  const Vocabulary& vocabulary_;
  NameIndex tokens_;
  PairIndex merges_;
  std::array<TokenId, 256> byte_tokens_;  // kByte tokens, or the byte-level ones; or kNoToken
};

}  // namespace kvarto
