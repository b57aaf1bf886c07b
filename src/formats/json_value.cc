// Drives nlohmann's event parser and builds the tree, with the limits that it does not have: depth,
// repeated keys, the literals of Python.

#include "formats/json_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace kvarto {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxQuoted = 40;   // characters of the text that a message repeats
constexpr std::size_t kMaxReason = 120;  // characters of the parser's own reason

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit)) out += c >= ' ' && c < '\x7f' ? c : '?';
  if (text.size() > limit) out += "...";
  return out;
}

// A literal of Python that became a string of the same length, and which string of the text it is.
struct Literal {
  std::size_t string_number = 0;
  double value = 0;
};

struct Prepared {
  std::string copy;  // the text with literals replaced; empty if there are none
  std::vector<Literal> literals;
};

// Replaces Infinity, -Infinity and NaN outside strings by strings of equal length, so that places
// in messages stay right, and remembers which strings they are.
Prepared prepare(std::string_view text) {
  struct Word {
    std::string_view word;
    double value;
  };
  constexpr Word kWords[] = {{"-Infinity", -std::numeric_limits<double>::infinity()},
                             {"Infinity", std::numeric_limits<double>::infinity()},
                             {"NaN", std::numeric_limits<double>::quiet_NaN()}};
  Prepared prepared;
  std::size_t num_strings = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      ++num_strings;
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
      ++i;
      continue;
    }
    const auto* word = std::find_if(std::begin(kWords), std::end(kWords), [&](const Word& w) {
      return text.substr(i, w.word.size()) == w.word;
    });
    if (word == std::end(kWords)) {
      ++i;
      continue;
    }
    if (prepared.copy.empty()) prepared.copy = text;
    prepared.copy.replace(i, word->word.size(),
                          '"' + std::string(word->word.size() - 2, 'x') + '"');
    prepared.literals.push_back({num_strings++, word->value});
    i += word->word.size();
  }
  return prepared;
}

// An iterator over the text that tells how far the parser has read.
class ReadingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  ReadingIterator(const char* at, const char** read) : at_(at), read_(read) {}
  reference operator*() const { return *at_; }
  ReadingIterator& operator++() {
    *read_ = ++at_;
    return *this;
  }
  ReadingIterator operator++(int) {
    const ReadingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const ReadingIterator& a, const ReadingIterator& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const ReadingIterator& a, const ReadingIterator& b) { return !(a == b); }

 private:
  const char* at_;
  const char** read_;
};

// Receives the parser's events. A handler that returns false ends the parse; reason() says why.
class TreeBuilder {
 public:
  explicit TreeBuilder(std::vector<Literal> literals) : literals_(std::move(literals)) {}

  bool null() { return add(Value{}); }
  bool boolean(bool value) { return add(Value{value}); }
  bool number_integer(std::int64_t value) { return add(Value{value}); }
  bool number_unsigned(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return add(Value{static_cast<double>(value)});
    }
    return add(Value{static_cast<std::int64_t>(value)});
  }
  bool number_float(double value, const std::string&) { return add(Value{value}); }
  bool string(std::string& value) {
    const std::size_t number = num_strings_++;
    if (next_literal_ < literals_.size() && literals_[next_literal_].string_number == number) {
      return add(Value{literals_[next_literal_++].value});
    }
    return add(Value{std::move(value)});
  }
  bool binary(std::vector<std::uint8_t>&) { return false; }  // text has none

  bool start_object(std::size_t) { return open(Value{ValueMap{}}); }
  bool start_array(std::size_t) { return open(Value{ValueList{}}); }
  bool key(std::string& name) {
    const std::size_t number = num_strings_++;
    if (next_literal_ < literals_.size() && literals_[next_literal_].string_number == number) {
      reason_ = "a literal as a key, expected a key in quotes";
      return false;
    }
    auto& map = std::get<ValueMap>(open_.back().data);
    map.push_back({std::move(name), Value{}});
    return check_name(map);
  }
  bool end_object() {
    const auto& map = std::get<ValueMap>(open_.back().data);
    return (map.size() <= kSmallMap || check_names(map)) && close();
  }
  bool end_array() { return close(); }

  bool parse_error(std::size_t, const std::string&, const Json::exception& problem) {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: REASON"
    std::string_view text = problem.what();
    const std::size_t place = text.find("column ");
    const std::size_t from = place == std::string_view::npos ? text.find("] ") : place;
    const std::size_t colon = text.find(place == std::string_view::npos ? " " : ": ", from);
    if (colon != std::string_view::npos) text.remove_prefix(colon + 1);
    while (text.starts_with(' ')) text.remove_prefix(1);
    reason_ = printable(text, kMaxReason);
    return false;
  }

  [[nodiscard]] const std::string& reason() const { return reason_; }
  [[nodiscard]] Value take() { return std::move(root_); }

 private:
  bool open(Value container) {
    if (open_.size() >= kMaxJsonDepth) {
      reason_ = fmt::format("more than {} deep", kMaxJsonDepth);
      return false;
    }
    open_.push_back(std::move(container));
    return true;
  }

  bool close() {
    Value done = std::move(open_.back());
    open_.pop_back();
    return add(std::move(done));
  }

  bool add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (auto* list = std::get_if<ValueList>(&open_.back().data)) {
      list->push_back(std::move(value));
    } else {
      std::get<ValueMap>(open_.back().data).back().value = std::move(value);
    }
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
    for (const auto& [name, value] : map) {
      names.emplace_back(std::hash<std::string_view>()(name), name);
    }
    std::sort(names.begin(), names.end());
    const auto repeated = std::adjacent_find(names.begin(), names.end());
    return repeated == names.end() || fail_repeated(repeated->second);
  }

  bool fail_repeated(std::string_view name) {
    reason_ = fmt::format("key \"{}\" appears twice in one map", printable(name, kMaxQuoted));
    return false;
  }

  std::vector<Literal> literals_;
  std::size_t next_literal_ = 0;
  std::size_t num_strings_ = 0;
  std::vector<Value> open_;
  Value root_;
  std::string reason_;
};

}  // namespace

Result<Value> parse_json(std::string_view text, std::string_view where) {
  // The parser takes a NUL for the end of its input and would accept what follows unread.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: after byte {}, line {}: found a NUL byte, "
                            "expected text",
                            where, nul + 1,
                            1 + std::count(text.begin(),
                                           text.begin() + static_cast<std::ptrdiff_t>(nul), '\n')));
  }
  try {
    Prepared prepared = prepare(text);
    const std::string_view source = prepared.copy.empty() ? text : prepared.copy;
    TreeBuilder builder(std::move(prepared.literals));
    const char* read = source.data();
    const ReadingIterator first(source.data(), &read);
    const ReadingIterator last(source.data() + source.size(), &read);
    if (Json::sax_parse(first, last, &builder)) return builder.take();
    const auto line = 1 + std::count(source.data(), read, '\n');
    return fail(ErrorCode::kCorruptData, fmt::format("{}: after byte {}, line {}: {}", where,
                                                     read - source.data(), line, builder.reason()));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("{}: no memory for the tree of {} bytes of JSON", where, text.size()));
  } catch (const std::exception& problem) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: {}", where, printable(problem.what(), kMaxReason)));
  }
}

}  // namespace kvarto
