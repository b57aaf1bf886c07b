#include "text/piece_encoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/byte_level.h"

namespace kvarto {
namespace {

void push_symbol(std::vector<Symbol>& symbols, std::size_t begin, std::size_t length,
                 TokenId token) {
  const auto at = static_cast<std::int32_t>(symbols.size());
  Symbol symbol{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(length), at - 1, -1,
                token};
  if (!symbols.empty()) symbols.back().next = at;
  symbols.push_back(symbol);
}

// Control tokens and bytes are never the outcome of a merge: "<s>" typed by a user is text.
bool grows_from_text(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined ||
         kind == TokenKind::kUnused;
}

}  // namespace

PieceEncoder::PieceEncoder(const Vocabulary& vocabulary, const std::vector<std::string>& spellings)
    : vocabulary_(vocabulary), tokens_(spellings), merges_(vocabulary.merges.size()) {
  byte_tokens_.fill(kNoToken);
  for (TokenId token = 0; token < spellings.size(); ++token) {
    const TokenKind kind = vocabulary.kinds[token];
    if (kind == TokenKind::kByte) {
      const auto byte = byte_named(vocabulary.tokens[token]);
      if (byte.has_value() && byte_tokens_[*byte] == kNoToken) byte_tokens_[*byte] = token;
    } else if (grows_from_text(kind) && !spellings[token].empty()) {
      // What was added to a byte-level vocabulary is found before merges, and spells no bytes.
      if (vocabulary.is_byte_level && kind == TokenKind::kUserDefined) continue;
      tokens_.add(token);
    }
  }
  if (vocabulary.is_byte_level) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char letter = static_cast<char>(byte);
      byte_tokens_[byte] = tokens_.find({&letter, 1}).value_or(kNoToken);
    }
  }
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const TokenMerge& merge = vocabulary.merges[rank];
    merges_.add(merge.left, merge.right, static_cast<std::uint32_t>(rank));
  }
}

tl::unexpected<Error> PieceEncoder::no_token(unsigned char byte) const {
  return fail(ErrorCode::kCorruptData,
              fmt::format("{}: {}: found no token for byte 0x{:02X}, which the text has",
                          vocabulary_.name, vocabulary_.tokens_key, byte));
}

bool PieceEncoder::spells_all(std::string_view text) const {
  return std::all_of(text.begin(), text.end(), [this](char c) {
    return byte_tokens_[static_cast<unsigned char>(c)] != kNoToken;
  });
}

Result<std::vector<Symbol>> PieceEncoder::byte_symbols(std::string_view piece) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (std::size_t at = 0; at < piece.size(); ++at) {
    const auto byte = static_cast<unsigned char>(piece[at]);
    if (byte_tokens_[byte] == kNoToken) return no_token(byte);
    push_symbol(symbols, at, 1, byte_tokens_[byte]);
  }
  return symbols;
}

Result<std::vector<Symbol>> PieceEncoder::letter_symbols(std::string_view piece) const {
  const bool is_scored = vocabulary_.rule == PieceRule::kScoredMerges;
  std::vector<Symbol> symbols;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t length = std::max<std::size_t>(1, utf8_length(piece.substr(at)));
    const std::string_view letter = piece.substr(at, length);
    const std::optional<TokenId> token = tokens_.find(letter);
    // Scored letters without a token may still grow into one.
    if (token.has_value() || is_scored) {
      push_symbol(symbols, at, length, token.value_or(kNoToken));
    } else if (vocabulary_.has_byte_fallback && spells_all(letter)) {
      for (std::size_t i = 0; i < length; ++i) {
        push_symbol(symbols, at + i, 1, byte_tokens_[static_cast<unsigned char>(letter[i])]);
      }
    } else if (vocabulary_.unknown.has_value()) {
      push_symbol(symbols, at, length, *vocabulary_.unknown);
    } else {
      return no_token(static_cast<unsigned char>(letter[0]));
    }
    at += length;
  }
  return symbols;
}

void PieceEncoder::join_ranked(std::vector<Symbol>& symbols) const {
  merge_symbols(symbols, [this](const Symbol& left, const Symbol& right) -> std::optional<Joined> {
    const auto rank = merges_.find(left.token, right.token);
    if (!rank.has_value()) return std::nullopt;
    return Joined{static_cast<double>(*rank), vocabulary_.merges[*rank].merged};
  });
}

void PieceEncoder::join_scored(std::string_view piece, std::vector<Symbol>& symbols) const {
  merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) -> std::optional<Joined> {
    const auto token = tokens_.find(piece.substr(left.begin, left.length + right.length));
    if (!token.has_value()) return std::nullopt;
    return Joined{-static_cast<double>(vocabulary_.scores[*token]), *token};
  });
}

Status PieceEncoder::append_spelled(std::string_view text, std::vector<TokenId>& out) const {
  if (!vocabulary_.has_byte_fallback && vocabulary_.unknown.has_value()) {
    out.push_back(*vocabulary_.unknown);
    return {};
  }
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte_tokens_[byte] == kNoToken) return no_token(byte);
    out.push_back(byte_tokens_[byte]);
  }
  return {};
}

Status PieceEncoder::append(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.empty()) return {};
  if (vocabulary_.takes_whole_words) {
    if (const auto token = tokens_.find(piece)) {
      out.push_back(*token);
      return {};
    }
  }
  KVARTO_TRY(std::vector<Symbol> symbols,
             vocabulary_.is_byte_level ? byte_symbols(piece) : letter_symbols(piece));
  if (vocabulary_.rule == PieceRule::kScoredMerges) {
    join_scored(piece, symbols);
  } else {
    join_ranked(symbols);
  }
  bool was_unknown = false;
  for (std::int32_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    const Symbol& symbol = symbols[static_cast<std::size_t>(i)];
    const std::size_t before = out.size();
    if (symbol.token != kNoToken) {
      out.push_back(symbol.token);
    } else {
      KVARTO_CHECK_OK(append_spelled(piece.substr(symbol.begin, symbol.length), out));
    }
    const bool is_unknown = out.size() == before + 1 && vocabulary_.unknown == out.back();
    if (is_unknown && was_unknown && vocabulary_.fuses_unknown) out.pop_back();
    was_unknown = is_unknown;
  }
  return {};
}

}  // namespace kvarto
