// JSON text to a tree of values, safe for text that nobody has checked.

#pragma once

#include <cstddef>
#include <string_view>

#include "kvarto/result.h"
#include "spec/keys.h"

namespace kvarto {

// Deepest nesting of lists and maps that is accepted. Published configs nest 5 deep.
inline constexpr std::size_t kMaxJsonDepth = 128;

// Memory that parsing takes at its peak, as a multiple of the size of the text. The worst text is
// a flat list of one-digit numbers: a 40-byte Value for every two bytes, held one and a half times
// over capacity while its vector grows.
inline constexpr std::size_t kMaxJsonExpansion = 64;

// Parses one JSON document (RFC 8259). Parsed by nlohmann-json; beyond the standard, the literals
// Infinity, -Infinity and NaN, which Python writes, are reals. Integers beyond int64 are reals;
// repeated keys of one map, invalid UTF-8, numbers beyond a double and anything after the document
// are errors.
//   where  name of the text in messages
// Errors: kCorruptData, naming byte and line; kOutOfMemory.
[[nodiscard]] Result<Value> parse_json(std::string_view text, std::string_view where);

}  // namespace kvarto
