#include "base/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace kvarto {

std::string printable(std::string_view text) {
  constexpr std::size_t kMaxBytes = 64;
  std::string out;
  for (const char c : text.substr(0, kMaxBytes)) {
    if (c >= 0x20 && c < 0x7f && c != '\\') {
      out.push_back(c);
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kMaxBytes) out += "...";
  return out;
}

}  // namespace kvarto
