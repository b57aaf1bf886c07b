// The changes of a text before it is split.

#pragma once

#include <string>
#include <string_view>

#include "kvarto/result.h"
#include "kvarto/vocabulary.h"

namespace kvarto {

// The text after all steps. Requires: valid UTF-8; a kReplace step replaces something.
// Errors: kOutOfMemory.
[[nodiscard]] Result<std::string> normalized(std::string_view text, const Vocabulary& vocabulary);

// The text with one space for every run of them; none at those ends that are those of the text.
[[nodiscard]] std::string with_single_spaces(std::string_view text, bool is_first, bool is_last);

}  // namespace kvarto
