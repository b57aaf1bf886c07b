// A compiled pattern of a pre-tokenizer.

#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "kvarto/result.h"
#include "kvarto/vocabulary.h"

namespace kvarto {

struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// What matching needs beside the patterns: memory, and the time that it may take for one text.
// Not thread-safe; one owner.
class MatchState {
 public:
  // For texts of so many bytes together. Errors: kOutOfMemory.
  [[nodiscard]] static Result<MatchState> create(std::size_t text_bytes);
  ~MatchState();
  MatchState(MatchState&&) noexcept;
  MatchState& operator=(MatchState&&) noexcept;

 private:
  friend class Pattern;
  struct Parts;
  explicit MatchState(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Const methods may be called concurrently.
class Pattern {
 public:
  // `where` names the pattern in messages. Errors: kInvalidArgument for one that does not compile.
  [[nodiscard]] static Result<Pattern> create(const SplitStep& step, std::string_view where);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // Replaces `matches` by those in `text`, in order, without empty ones. Requires: valid UTF-8.
  // Errors: kUnsupported if the pattern needs too many steps, too much memory or time on this text.
  [[nodiscard]] Status find_all(std::string_view text, MatchState& state,
                                std::vector<TextRange>& matches) const;

 private:
  struct Compiled;
  [[nodiscard]] tl::unexpected<Error> too_slow(std::string_view reason) const;
  explicit Pattern(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace kvarto
