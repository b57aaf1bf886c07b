// The spellings of bytes: by the letters that byte-level vocabularies use, and by number.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvarto {

// The bytes that a token of a byte-level vocabulary spells. A token with any letter that spells
// no byte stands for itself, as such tokens are added as whole words.
[[nodiscard]] std::string bytes_spelled(std::string_view token);

// The byte of "<0xE2>"; nullopt for anything else.
[[nodiscard]] std::optional<unsigned char> byte_named(std::string_view token);

}  // namespace kvarto
