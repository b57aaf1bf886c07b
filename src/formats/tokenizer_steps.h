// Rules that vocabularies of several formats share.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kvarto/vocabulary.h"

namespace kvarto {

// Published vocabularies have up to 270,000.
inline constexpr std::size_t kMaxVocabularyTokens = std::size_t{1} << 24;

// U+2581, with which SentencePiece writes a space.
inline constexpr const char* kSpaceMark = "\u2581";

// SentencePiece's number of a kind of token (sentencepiece_model.proto, SentencePiece.Type).
[[nodiscard]] std::optional<TokenKind> sentencepiece_kind(std::uint64_t number);

// Spaces are written as kSpaceMark, with one more before the text at `place`.
void mark_spaces(Vocabulary& vocabulary, TextPrefix::Place place);

}  // namespace kvarto
