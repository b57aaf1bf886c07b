// Reads JSON of a known shape token by token, without a tree of values.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "kvarto/result.h"

namespace kvarto {

// A cursor over one text. After an error nothing else may be called. Not thread-safe.
// Errors are kCorruptData and name the text and the byte.
class JsonCursor {
 public:
  // `name` is that of the text in messages.
  JsonCursor(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  // What is being read, for messages: "tensor" and its name ("" = nothing in particular).
  void enter(std::string_view kind, std::string_view name) {
    kind_ = kind;
    record_ = name;
  }

  // Skips blanks; if the next character is `wanted`, steps over it.
  [[nodiscard]] bool accept(char wanted) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  Status expect(char wanted) {
    if (accept(wanted)) return {};
    return unexpected(wanted);
  }
  // Only blanks may follow.
  Status expect_end();

  // A string: a view of the text, or of a new element of `decoded` if it has escapes.
  Result<std::string_view> string(std::deque<std::string>& decoded);

  // A number of digits alone that fits 64 bits.
  Result<std::uint64_t> whole_number();

 private:
  void skip_blanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  // The rest of a string from the first escape on; `out` holds what came before it.
  Status decode_rest(std::string& out);
  Status decode_escape(std::string& out);
  Result<std::uint32_t> hex4();
  // Skips bytes of a string that stand for themselves; an error for invalid ones.
  Status skip_plain();
  [[nodiscard]] Status unexpected(char wanted) const;
  [[nodiscard]] tl::unexpected<Error> bad(std::string_view expected) const;

  std::string_view text_;
  std::string_view name_;
  std::string_view kind_;
  std::string_view record_;
  std::size_t at_ = 0;
};

}  // namespace kvarto
