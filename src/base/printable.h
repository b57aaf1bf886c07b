// Text from outside made fit for a message: one line, no control characters, not endless.

#pragma once

#include <string>
#include <string_view>

namespace kvarto {

// Bytes outside printable ASCII become \xNN; more than 64 bytes are cut with "...".
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace kvarto
