// Splits text into the pieces within which tokens may grow.

#pragma once

#include <string_view>
#include <vector>

#include "kvarto/result.h"
#include "kvarto/vocabulary.h"
#include "text/pattern.h"

namespace kvarto {

// Const methods may be called concurrently.
class Splitter {
 public:
  // Errors: those of Pattern::create().
  [[nodiscard]] static Result<Splitter> create(const Vocabulary& vocabulary);

  // The pieces of `text`, in order; views of it. Requires: valid UTF-8.
  // Errors: those of Pattern::find_all().
  [[nodiscard]] Result<std::vector<std::string_view>> split(std::string_view text) const;

 private:
  struct Step {
    Pattern pattern;
    bool is_inverted = false;
    SplitStep::Behavior behavior{};
  };
  std::vector<Step> steps_;
};

}  // namespace kvarto
