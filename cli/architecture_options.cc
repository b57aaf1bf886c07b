#include "architecture_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kvarto/plan.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

bool is_open_in(const std::vector<std::string_view>& open, std::string_view name) {
  return std::find(open.begin(), open.end(), name) != open.end();
}

// The value that a word states for a number. Multi-head attention has as many KV heads as query
// heads, whatever their number.
Result<std::optional<double>> stated_value(const std::string& word, std::string_view name,
                                           const std::vector<GivenNumber>& numbers) {
  KVARTO_TRY(const std::vector<StatedNumber> stated, stated_numbers(word));
  for (const StatedNumber& number : stated) {
    if (number.name == name) return std::optional<double>(number.value);
  }
  if (word != "mha" || name != "kv-heads") return std::optional<double>();
  for (const GivenNumber& number : numbers) {
    if (number.name == "q-heads" && number.value.has_value()) return number.value;
  }
  return std::optional<double>(static_cast<double>(kDefaultQueryHeads));
}

}  // namespace

Status check_stated_numbers(const std::vector<std::string>& words,
                            const std::vector<GivenNumber>& numbers) {
  for (const GivenNumber& given : numbers) {
    if (!given.value.has_value()) continue;
    Status contradiction;
    bool is_used = words.empty();
    for (const std::string& word : words) {
      KVARTO_TRY(const std::vector<std::string_view> open, open_numbers(word));
      KVARTO_TRY(const auto stated, stated_value(word, given.name, numbers));
      is_used = is_used || is_open_in(open, given.name) || stated == given.value;
      if (!stated.has_value() || stated == given.value || !contradiction.has_value()) continue;
      contradiction = fail(ErrorCode::kInvalidArgument,
                           fmt::format("--{}: found {}, expected {} as in --arch {}", given.name,
                                       short_real(*given.value), short_real(*stated), word));
    }
    if (!is_used && !contradiction.has_value()) return contradiction;
    if (is_used) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--{}: changes nothing under {}, which does not have it", given.name,
                            fmt::join(words, ", ")));
  }
  return {};
}

tl::unexpected<Error> refuse_latent_head_dim(std::string_view architecture) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--head-dim: found beside {}, expected --latent-dim and --rope-dim",
                          architecture));
}

Status check_open_numbers(const std::vector<std::string>& words,
                          const std::vector<GivenNumber>& numbers) {
  std::vector<std::string_view> used;
  for (const std::string& word : words) {
    KVARTO_TRY(const std::vector<std::string_view> open, open_numbers(word));
    used.insert(used.end(), open.begin(), open.end());
  }
  for (const GivenNumber& given : numbers) {
    if (!given.value.has_value()) continue;
    if (words.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--{}: a MODEL has its own numbers; give --arch or --what-if for "
                              "another architecture",
                              given.name));
    }
    if (is_open_in(used, given.name)) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--{}: changes nothing under {}, which does not have it or states its "
                            "own",
                            given.name, fmt::join(words, ", ")));
  }
  return {};
}

}  // namespace kvarto::cli
