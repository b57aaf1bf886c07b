#include "formats/json_cursor.h"

#include <fmt/format.h>

#include <cstring>

#include "base/checked.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace kvarto {
namespace {

// Whether one of 8 bytes needs a look in a string: below 0x20, above 0x7f, a quote or a backslash.
// The tests of whole words are those of Warren, Hacker's Delight, section 6-1.
bool has_special(const char* bytes) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  constexpr std::uint64_t kHighs = 0x8080808080808080;
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  const auto has_zero = [](std::uint64_t w) { return (w - kOnes) & ~w & kHighs; };
  const std::uint64_t is_control = (word - kOnes * 0x20) & ~word & kHighs;
  return ((word & kHighs) | is_control | has_zero(word ^ (kOnes * '"')) |
          has_zero(word ^ (kOnes * '\\'))) != 0;
}

}  // namespace

tl::unexpected<Error> JsonCursor::bad(std::string_view expected) const {
  const std::string found = at_ < text_.size()
                                ? fmt::format("\"{}\"", printable(text_.substr(at_, 1)))
                                : std::string("its end");
  const std::string place =
      kind_.empty() ? std::string() : fmt::format("{} \"{}\": ", kind_, printable(record_));
  return fail(ErrorCode::kCorruptData,
              fmt::format("{}: {}byte {} of the header: found {}, expected {}", name_, place, at_,
                          found, expected));
}

Status JsonCursor::unexpected(char wanted) const {
  return bad(wanted == '"' ? std::string("a string") : fmt::format("\"{}\"", wanted));
}

Status JsonCursor::expect_end() {
  skip_blanks();
  if (at_ == text_.size()) return {};
  return bad("nothing more");
}

Status JsonCursor::skip_plain() {
  while (at_ + 8 <= text_.size() && !has_special(text_.data() + at_)) at_ += 8;
  while (at_ < text_.size()) {
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"' || c == '\\') return {};
    if (c < 0x20) return bad("no control character in a string");
    if (c < 0x80) {
      ++at_;
      continue;
    }
    const std::size_t length = utf8_length(text_.substr(at_));
    if (length == 0) return bad("valid UTF-8");
    at_ += length;
  }
  return bad("a closing quote");
}

Result<std::string_view> JsonCursor::string(std::deque<std::string>& decoded) {
  KVARTO_CHECK_OK(expect('"'));
  const std::size_t start = at_;
  KVARTO_CHECK_OK(skip_plain());
  if (text_[at_] == '"') return text_.substr(start, at_++ - start);
  std::string& out = decoded.emplace_back(text_.substr(start, at_ - start));
  KVARTO_CHECK_OK(decode_rest(out));
  return std::string_view(out);
}

Status JsonCursor::decode_rest(std::string& out) {
  while (true) {
    const std::size_t start = at_;
    KVARTO_CHECK_OK(skip_plain());
    out.append(text_.substr(start, at_ - start));
    if (text_[at_++] == '"') return {};
    KVARTO_CHECK_OK(decode_escape(out));
  }
}

// Behind the backslash.
Status JsonCursor::decode_escape(std::string& out) {
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const std::size_t letter = at_ < text_.size() ? kLetters.find(text_[at_]) : std::string::npos;
  if (letter != std::string::npos) {
    out.push_back(kMeanings[letter]);
    ++at_;
    return {};
  }
  if (at_ == text_.size() || text_[at_] != 'u') return bad("an escape of JSON");
  ++at_;
  KVARTO_TRY(std::uint32_t code, hex4());
  // RFC 8259 section 7: characters beyond U+FFFF are written as a pair of surrogates.
  if (code >= 0xD800 && code <= 0xDFFF) {
    if (code >= 0xDC00 || text_.substr(at_, 2) != "\\u") return bad("a pair of surrogates");
    at_ += 2;
    KVARTO_TRY(const std::uint32_t low, hex4());
    if (low < 0xDC00 || low > 0xDFFF) return bad("a pair of surrogates");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(out, code);
  return {};
}

Result<std::uint32_t> JsonCursor::hex4() {
  std::uint32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const bool is_digit = c >= '0' && c <= '9';
    const bool is_lower = c >= 'a' && c <= 'f';
    if (!is_digit && !is_lower && !(c >= 'A' && c <= 'F')) return bad("four hexadecimal digits");
    const int value = is_digit ? c - '0' : is_lower ? c - 'a' + 10 : c - 'A' + 10;
    code = code * 16 + static_cast<std::uint32_t>(value);
  }
  return code;
}

Result<std::uint64_t> JsonCursor::whole_number() {
  skip_blanks();
  const std::size_t start = at_;
  std::uint64_t number = 0;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
    const auto tens = checked_mul(number, 10);
    const auto sum =
        tens ? checked_add(*tens, static_cast<std::uint64_t>(text_[at_] - '0')) : std::nullopt;
    if (!sum) return bad("a number below 2^64");
    number = *sum;
    ++at_;
  }
  const bool has_leading_zero = at_ > start + 1 && text_[start] == '0';
  const bool goes_on =
      at_ < text_.size() && std::string_view(".eE").find(text_[at_]) != std::string_view::npos;
  if (at_ == start || has_leading_zero || goes_on) return bad("a whole number");
  return number;
}

}  // namespace kvarto
