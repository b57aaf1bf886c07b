// A recursive-descent parser over bytes in memory. Written here because headers of safetensors
// reach 10 MB and nlohmann's lexer alone stays below 150 MB/s; tests compare the two.

#include "formats/json_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace kvarto {
namespace {

constexpr std::size_t kMaxQuoted = 40;  // characters of the text that a message repeats

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether a byte inside a string stands for itself and needs no further check.
bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; }

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMaxQuoted)) out += c >= ' ' && c < '\x7f' ? c : '?';
  if (text.size() > kMaxQuoted) out += "...";
  return out;
}

// One use parses one text. Every parse_* function returns whether it succeeded; after a failure
// the place and reason are in `error()` and nothing else may be called.
class Parser {
 public:
  explicit Parser(std::string_view text)
      : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()) {}

  bool parse_document(Value& out) {
    if (rest().starts_with("\xEF\xBB\xBF")) at_ += 3;  // a byte order mark may be ignored
    if (!parse_value(out, 0)) return false;
    skip_blanks();
    return at_ == end_ || fail_here("text after the document");
  }

  struct Place {
    std::size_t byte;
    std::size_t line;
    std::string reason;
  };
  [[nodiscard]] Place error() const {
    const auto line = 1 + std::count(begin_, at_, '\n');
    return {static_cast<std::size_t>(at_ - begin_), static_cast<std::size_t>(line), reason_};
  }

 private:
  [[nodiscard]] std::string_view rest() const {
    return {at_, static_cast<std::size_t>(end_ - at_)};
  }

  bool fail_here(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  // "found X, expected Y" with X at the parser's place.
  bool expected(std::string_view what) {
    if (at_ == end_) return fail_here(fmt::format("found the end, expected {}", what));
    return fail_here(fmt::format("found \"{}\", expected {}", printable({at_, 1}), what));
  }

  void skip_blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }

  bool parse_value(Value& out, std::size_t depth) {
    skip_blanks();
    if (at_ == end_) return expected("a value");
    switch (*at_) {
      case '{':
        return parse_map(out.data.emplace<ValueMap>(), depth + 1);
      case '[':
        return parse_list(out.data.emplace<ValueList>(), depth + 1);
      case '"':
        return parse_string(out.data.emplace<std::string>());
      case 't':
        return parse_word("true", out, true);
      case 'f':
        return parse_word("false", out, false);
      case 'n':
        return parse_word("null", out, std::monostate{});
      case 'N':
        return parse_word("NaN", out, std::numeric_limits<double>::quiet_NaN());
      case 'I':
        return parse_word("Infinity", out, std::numeric_limits<double>::infinity());
      default:
        return parse_number(out);
    }
  }

  template <typename T>
  bool parse_word(std::string_view word, Value& out, T value) {
    if (!rest().starts_with(word)) return expected("a value");
    at_ += word.size();
    out.data = value;
    return true;
  }

  bool parse_list(ValueList& list, std::size_t depth) {
    if (!enter(depth)) return false;
    skip_blanks();
    if (at_ != end_ && *at_ == ']') {
      ++at_;
      return true;
    }
    list.reserve(2);
    while (true) {
      if (!parse_value(list.emplace_back(), depth)) return false;
      skip_blanks();
      if (at_ == end_ || (*at_ != ',' && *at_ != ']')) return expected("\",\" or \"]\"");
      if (*at_++ == ']') return true;
    }
  }

  bool parse_map(ValueMap& map, std::size_t depth) {
    if (!enter(depth)) return false;
    skip_blanks();
    if (at_ != end_ && *at_ == '}') {
      ++at_;
      return true;
    }
    map.reserve(4);
    while (true) {
      skip_blanks();
      if (at_ == end_ || *at_ != '"') return expected("a key in quotes");
      auto& [name, value] = map.emplace_back();
      if (!parse_string(name) || !check_name(map)) return false;
      skip_blanks();
      if (at_ == end_ || *at_ != ':') return expected("\":\"");
      ++at_;
      if (!parse_value(value, depth)) return false;
      skip_blanks();
      if (at_ == end_ || (*at_ != ',' && *at_ != '}')) return expected("\",\" or \"}\"");
      if (*at_++ == '}') return map.size() <= kSmallMap || check_names(map);
    }
  }

  bool enter(std::size_t depth) {
    if (depth > kMaxJsonDepth) return fail_here(fmt::format("more than {} deep", kMaxJsonDepth));
    ++at_;
    return true;
  }

  // Small maps are compared name by name, large ones sorted by hash when they end: never quadratic,
  // also if a hostile file makes all hashes equal.
  static constexpr std::size_t kSmallMap = 16;

  bool check_name(const ValueMap& map) {
    if (map.size() > kSmallMap) return true;
    const std::string& name = map.back().name;
    for (std::size_t i = 0; i + 1 < map.size(); ++i) {
      if (map[i].name == name) return fail_repeated(name);
    }
    return true;
  }

  bool check_names(const ValueMap& map) {
    using HashedName = std::pair<std::size_t, std::string_view>;
    std::vector<HashedName> names;
    names.reserve(map.size());
    for (const auto& [name, value] : map)
      names.emplace_back(std::hash<std::string_view>()(name), name);
    std::sort(names.begin(), names.end());
    const auto repeated = std::adjacent_find(names.begin(), names.end());
    return repeated == names.end() || fail_repeated(repeated->second);
  }

  bool fail_repeated(std::string_view name) {
    return fail_here(fmt::format("key \"{}\" appears twice in one map", printable(name)));
  }

  bool parse_string(std::string& out) {
    ++at_;
    while (true) {
      const char* from = at_;
      while (at_ != end_ && is_plain(static_cast<unsigned char>(*at_))) ++at_;
      out.append(from, at_);
      if (at_ == end_) return expected("a closing quote");
      const auto c = static_cast<unsigned char>(*at_);
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c == '\\') {
        if (!parse_escape(out)) return false;
      } else if (c < 0x20) {
        return fail_here(fmt::format("control character {:#04x} in a string", c));
      } else {
        const std::size_t length = utf8_length(rest());
        if (length == 0) return fail_here("invalid UTF-8 in a string");
        out.append(at_, length);
        at_ += length;
      }
    }
  }

  bool parse_escape(std::string& out) {
    ++at_;
    if (at_ == end_) return expected("an escape");
    switch (*at_) {
      case '"':
      case '\\':
      case '/':
        out += *at_;
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'u':
        return parse_unicode_escape(out);
      default:
        return expected("one of \" \\ / b f n r t u after a backslash");
    }
    ++at_;
    return true;
  }

  // At the `u` of \uXXXX; a high surrogate takes its low half with it.
  bool parse_unicode_escape(std::string& out) {
    std::uint32_t code = 0;
    if (!parse_hex4(code)) return false;
    const bool is_low = code >= 0xDC00 && code <= 0xDFFF;
    if (code >= 0xD800 && code <= 0xDBFF) {
      std::uint32_t low = 0;
      if (!rest().starts_with("\\u")) return fail_here("half a surrogate pair in a string");
      ++at_;
      if (!parse_hex4(low)) return false;
      if (low < 0xDC00 || low > 0xDFFF) return fail_here("half a surrogate pair in a string");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (is_low) {
      return fail_here("half a surrogate pair in a string");
    }
    append_utf8(out, code);
    return true;
  }

  bool parse_hex4(std::uint32_t& code) {
    ++at_;
    const char* stop = at_ + std::min<std::ptrdiff_t>(4, end_ - at_);
    const auto [last, problem] = std::from_chars(at_, stop, code, 16);
    // from_chars would take a minus sign for a signed type only; `code` is unsigned.
    if (problem != std::errc{} || last - at_ != 4) return expected("four hexadecimal digits");
    at_ = last;
    return true;
  }

  bool skip_digits() {
    if (at_ == end_ || !is_digit(*at_)) return expected("a digit");
    while (at_ != end_ && is_digit(*at_)) ++at_;
    return true;
  }

  bool parse_number(Value& out) {
    const char* from = at_;
    if (*at_ == '-') ++at_;
    if (rest().starts_with("Infinity")) {
      return parse_word("Infinity", out, -std::numeric_limits<double>::infinity());
    }
    if (at_ == end_ || !is_digit(*at_)) return expected(from == at_ ? "a value" : "a digit");
    if (*at_ == '0') {
      ++at_;
    } else if (!skip_digits()) {
      return false;
    }
    bool is_integer = true;
    if (at_ != end_ && *at_ == '.') {
      is_integer = false;
      ++at_;
      if (!skip_digits()) return false;
    }
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
      is_integer = false;
      ++at_;
      if (at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      if (!skip_digits()) return false;
    }
    std::int64_t integer = 0;
    if (is_integer && std::from_chars(from, at_, integer).ec == std::errc{}) {
      out.data = integer;
      return true;
    }
    double real = 0.0;
    if (std::from_chars(from, at_, real).ec != std::errc{}) {
      at_ = from;
      return fail_here("a number beyond the range of a double");
    }
    out.data = real;
    return true;
  }

  const char* begin_;
  const char* at_;
  const char* end_;
  std::string reason_;
};

}  // namespace

Result<Value> parse_json(std::string_view text, std::string_view where) {
  try {
    Parser parser(text);
    Value root;
    if (parser.parse_document(root)) return root;
    const Parser::Place place = parser.error();
    return fail(ErrorCode::kCorruptData, fmt::format("{}: byte {}, line {}: {}", where, place.byte,
                                                     place.line, place.reason));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("{}: no memory for the tree of {} bytes of JSON", where, text.size()));
  }
}

}  // namespace kvarto
