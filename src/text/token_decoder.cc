#include <utility>

#include "base/utf8.h"
#include "kvarto/tokenizer.h"

namespace kvarto {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

// Whether `bytes`, which are no character, could still become one by more bytes.
bool is_beginning(std::string_view bytes) {
  if (bytes.size() >= 4) return false;
  std::string longer(bytes);
  // Of the bytes that may follow a lead, 0x80 or 0xBF fits wherever any does, but for overlong and
  // forbidden forms, where the other one does.
  for (const char next : {'\x80', '\x90', '\xBF'}) {
    longer = bytes;
    longer += next;
    while (longer.size() < 4) longer += '\x80';
    if (utf8_length(longer) > bytes.size()) return true;
  }
  return false;
}

}  // namespace

TokenDecoder::TokenDecoder(const Tokenizer& tokenizer, Place place)
    : tokenizer_(tokenizer),
      is_at_start_(place == Place::kStart && tokenizer.vocabulary().drops_first_space) {}

std::string TokenDecoder::add(TokenId token) {
  std::string_view bytes = tokenizer_.bytes_of(token);
  if (is_at_start_ && !bytes.empty()) {
    if (bytes[0] == ' ') bytes.remove_prefix(1);
    is_at_start_ = false;
  }
  held_ += bytes;
  return take(false);
}

std::string TokenDecoder::finish() { return take(true); }

std::string TokenDecoder::take(bool is_end) {
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const std::size_t length = utf8_length(rest);
    if (length > 0) {
      out += rest.substr(0, length);
      rest.remove_prefix(length);
      continue;
    }
    // Of what is no character, all bytes that could have begun one are replaced together (Unicode
    // Standard, "U+FFFD substitution of maximal subparts").
    std::size_t part = 1;
    while (part < rest.size() && is_beginning(rest.substr(0, part + 1))) ++part;
    if (part == rest.size() && is_beginning(rest) && !is_end) break;
    out += kReplacement;
    rest.remove_prefix(part);
  }
  held_ = std::string(rest);
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens) const {
  TokenDecoder decoder(*this);
  std::string out;
  for (const TokenId token : tokens) out += decoder.add(token);
  return out += decoder.finish();
}

}  // namespace kvarto
