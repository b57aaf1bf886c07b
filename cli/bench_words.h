// Words of the options that several kinds of kvarto bench have.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/measure.h"
#include "kvarto/result.h"

namespace kvarto::cli {

// Errors of all: kInvalidArgument, naming the option.
[[nodiscard]] Result<BenchContent> parse_content(std::string_view word);  // --data
[[nodiscard]] Result<double> parse_seconds(std::string_view word);
// Tokens; 0 for "contiguous".
[[nodiscard]] Result<std::uint64_t> parse_block_size(std::string_view word);
[[nodiscard]] Result<std::uint32_t> parse_threads(std::string_view word);

// An option that this measurement does not have.
[[nodiscard]] Status refuse_option(std::string_view option, std::string_view why);

// Replaces every case by one for each of `words`; `set(word, case)` applies it. None: all stay.
template <typename Case, typename Set>
[[nodiscard]] Status multiply(std::vector<Case>& cases, const std::vector<std::string>& words,
                              const Set& set) {
  if (words.empty()) return {};
  std::vector<Case> all;
  for (const Case& base : cases) {
    for (const std::string& word : words) {
      all.push_back(base);
      KVARTO_CHECK_OK(set(word, all.back()));
    }
  }
  cases = std::move(all);
  return {};
}

}  // namespace kvarto::cli
