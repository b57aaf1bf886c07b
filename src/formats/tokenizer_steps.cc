#include "formats/tokenizer_steps.h"

namespace kvarto {

std::optional<TokenKind> sentencepiece_kind(std::uint64_t number) {
  switch (number) {
    case 1:
      return TokenKind::kNormal;
    case 2:
      return TokenKind::kUnknown;
    case 3:
      return TokenKind::kControl;
    case 4:
      return TokenKind::kUserDefined;
    case 5:
      return TokenKind::kUnused;
    case 6:
      return TokenKind::kByte;
    default:
      return std::nullopt;
  }
}

void mark_spaces(Vocabulary& vocabulary, TextPrefix::Place place) {
  vocabulary.marks_spaces = true;
  vocabulary.prefix = {place, " ", true};
  vocabulary.steps.push_back({TextStep::Kind::kReplace, " ", kSpaceMark});
  vocabulary.drops_first_space = place != TextPrefix::Place::kNever;
}

}  // namespace kvarto
