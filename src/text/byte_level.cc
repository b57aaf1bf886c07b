#include "text/byte_level.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace kvarto {
namespace {

// Printable bytes of Latin-1 spell themselves; the others, in order, the letters from U+0100 on.
// Source: Radford et al. 2019, bytes_to_unicode() of the GPT-2 release.
constexpr bool spells_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}
constexpr unsigned kNumShifted = 68;  // 256 bytes less the 94 + 12 + 82 that spell themselves
constexpr unsigned kFirstShifted = 0x100;

constexpr std::array<unsigned char, kNumShifted> shifted_bytes() {
  std::array<unsigned char, kNumShifted> bytes{};
  unsigned count = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (!spells_itself(byte)) bytes[count++] = static_cast<unsigned char>(byte);
  }
  return bytes;
}
constexpr std::array<unsigned char, kNumShifted> kShifted = shifted_bytes();

// All letters of the spelling lie below U+0800: one or two bytes of UTF-8.
int byte_of_letter(std::string_view letter) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(letter[i]); };
  unsigned code = at(0);
  if (letter.size() == 2) code = ((code & 0x1F) << 6) | (at(1) & 0x3Fu);
  if (letter.size() > 2) return -1;
  if (code < 256) return spells_itself(code) ? static_cast<int>(code) : -1;
  return code - kFirstShifted < kNumShifted ? kShifted[code - kFirstShifted] : -1;
}

}  // namespace

std::string bytes_spelled(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t at = 0; at < token.size();) {
    const std::size_t length = utf8_length(token.substr(at));
    if (length == 0) return std::string(token);
    const int byte = byte_of_letter(token.substr(at, length));
    if (byte < 0) return std::string(token);
    bytes += static_cast<char>(byte);
    at += length;
  }
  return bytes;
}

std::optional<unsigned char> byte_named(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    const bool is_digit = c >= '0' && c <= '9';
    const bool is_upper = c >= 'A' && c <= 'F';
    if (!is_digit && !is_upper) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(is_digit ? c - '0' : c - 'A' + 10);
  }
  return static_cast<unsigned char>(value);
}

}  // namespace kvarto
