// Small vocabularies, made here: samples for tests of tokenizers.

#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvarto/vocabulary.h"

namespace kvarto::samples {

inline void add_token(Vocabulary& vocabulary, std::string_view text, float score = 0,
                      TokenKind kind = TokenKind::kNormal) {
  vocabulary.tokens.emplace_back(text);
  vocabulary.scores.push_back(score);
  vocabulary.kinds.push_back(kind);
}

// As Llama 2 has it, in small: <unk> <s> </s>, 256 bytes, then `pieces`, the best first.
[[nodiscard]] inline Vocabulary scored_vocabulary(const std::vector<std::string>& pieces) {
  Vocabulary vocabulary;
  vocabulary.name = "small.gguf";
  vocabulary.tokens_key = "tokens";
  add_token(vocabulary, "<unk>", 0, TokenKind::kUnknown);
  add_token(vocabulary, "<s>", 0, TokenKind::kControl);
  add_token(vocabulary, "</s>", 0, TokenKind::kControl);
  for (unsigned byte = 0; byte < 256; ++byte) {
    add_token(vocabulary, fmt::format("<0x{:02X}>", byte), 0, TokenKind::kByte);
  }
  float score = 0;
  for (const std::string& piece : pieces) add_token(vocabulary, piece, --score);
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.adds_bos = true;
  vocabulary.has_byte_fallback = true;
  vocabulary.marks_spaces = true;
  vocabulary.drops_first_space = true;
  vocabulary.prefix = {TextPrefix::Place::kEveryFragment, " ", true};
  vocabulary.steps = {{TextStep::Kind::kReplace, " ", "\u2581"}};
  return vocabulary;
}
inline constexpr TokenId kFirstPiece = 3 + 256;
[[nodiscard]] inline TokenId byte_token(unsigned char byte) { return 3u + byte; }

// A byte-level one: the 256 bytes in their order, then the merges of `pairs` in theirs. Letters of
// ASCII are spelled by themselves.
[[nodiscard]] inline Vocabulary byte_vocabulary(
    const std::vector<std::pair<std::string, std::string>>& pairs) {
  Vocabulary vocabulary;
  vocabulary.name = "bytes.gguf";
  vocabulary.tokens_key = "tokens";
  vocabulary.rule = PieceRule::kRankedMerges;
  vocabulary.is_byte_level = true;
  unsigned shifted = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_plain =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const unsigned letter = is_plain ? byte : shifted++;
    std::string text;
    if (letter < 0x80) {
      text += static_cast<char>(letter);
    } else {
      text += static_cast<char>(0xC0 | (letter >> 6));
      text += static_cast<char>(0x80 | (letter & 0x3F));
    }
    add_token(vocabulary, text);
  }
  const auto find = [&vocabulary](const std::string& text) {
    for (TokenId token = 0; token < vocabulary.tokens.size(); ++token) {
      if (vocabulary.tokens[token] == text) return token;
    }
    return TokenId{0xFFFF'FFFF};
  };
  for (const auto& [left, right] : pairs) {
    add_token(vocabulary, left + right);
    vocabulary.merges.push_back(
        {find(left), find(right), static_cast<TokenId>(vocabulary.tokens.size() - 1)});
  }
  vocabulary.scores.clear();
  return vocabulary;
}

}  // namespace kvarto::samples
