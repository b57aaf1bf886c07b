// UTF-8 of outside text: how long a sequence is, and how to write one.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvarto {

// Bytes of the UTF-8 sequence at the start of `text`; 0 if it is invalid (RFC 3629: no overlong
// forms, no surrogates, nothing beyond U+10FFFF). Requires: `text` is not empty.
[[nodiscard]] std::size_t utf8_length(std::string_view text);

// Appends `code`. Requires: at most U+10FFFF and no surrogate.
void append_utf8(std::string& out, std::uint32_t code);

}  // namespace kvarto
