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

// Const methods may be called concurrently.
class Pattern {
 public:
  // `where` names the pattern in messages. Errors: kInvalidArgument for one that does not compile.
  [[nodiscard]] static Result<Pattern> create(const SplitStep& step, std::string_view where);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // Replaces `matches` by those in `text`, in order, without empty ones. Requires: valid UTF-8.
  // Errors: kUnsupported if the pattern needs too many steps or too much memory on this text.
  [[nodiscard]] Status find_all(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  struct Compiled;
  explicit Pattern(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace kvarto
