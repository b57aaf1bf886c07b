#include "plan/architecture_word.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "spec/keys.h"

namespace kvarto {
namespace {

// How many numbers a word may carry, and what they are called in messages.
struct KnownWord {
  std::string_view name;
  ArchitectureKind kind{};
  std::string_view form;
};

constexpr std::array<KnownWord, 13> kWords = {{
    {"mha", ArchitectureKind::kMha, "mha"},
    {"mqa", ArchitectureKind::kMqa, "mqa"},
    {"gqa", ArchitectureKind::kGqa, "gqa[:G]"},
    {"mla", ArchitectureKind::kMla, "mla[:L+R]"},
    {"dsa", ArchitectureKind::kDsa, "dsa[:K]"},
    {"csa", ArchitectureKind::kCsa, "csa"},
    {"hca", ArchitectureKind::kHca, "hca"},
    {"multilevel", ArchitectureKind::kMultilevel, "multilevel[:g[:w]]"},
    {"dynamic", ArchitectureKind::kDynamic, "dynamic[:ratio]"},
    {"quest", ArchitectureKind::kQuest, "quest[:budget]"},
    {"moba", ArchitectureKind::kMoba, "moba"},
    {"nsa", ArchitectureKind::kNsa, "nsa"},
    {"swa", ArchitectureKind::kSwa, "swa[:w]"},
}};

// Names that popular articles use, and what they mean.
struct Alias {
  std::string_view alias;
  std::string_view name;
  std::string_view note;
};

constexpr std::array<Alias, 3> kAliases = {{
    {"multi-level-attention", "multilevel",
     "multi-level-attention is planned as multilevel: one aggregate for every group of tokens "
     "beside the tokens; MLA is multi-head latent attention, the word mla"},
    {"dynamic-sparse-attention", "dynamic",
     "dynamic-sparse-attention is planned as dynamic: a predictor chooses the blocks that a step "
     "reads; DSA is DeepSeek sparse attention, the word dsa"},
    {"multi-head-latent-attention", "mla", "multi-head-latent-attention is the word mla"},
}};

tl::unexpected<Error> bad_word(std::string_view word, std::string_view form) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("architecture \"{}\", expected {}", word, form));
}

std::optional<std::uint64_t> parse_count(std::string_view text, std::int64_t max) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  if (value == 0 || value > static_cast<std::uint64_t>(max)) return std::nullopt;
  return value;
}

std::optional<double> parse_ratio(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  if (!(value > 0.0 && value <= 1.0)) return std::nullopt;
  return value;
}

// Sets `first` and, after `separator`, `second`.
bool parse_pair(std::string_view numbers, char separator, std::int64_t max,
                ArchitectureWord& parsed) {
  const std::size_t at = numbers.find(separator);
  const auto first = parse_count(numbers.substr(0, at), max);
  if (!first) return false;
  parsed.first = *first;
  if (at == std::string_view::npos) return true;
  const std::string_view rest = numbers.substr(at + 1);
  if (separator == '+' && rest == "0") return true;  // a latent may have no rotated part
  const auto second = parse_count(rest, max);
  parsed.second = second.value_or(0);
  return second.has_value();
}

bool parse_numbers(std::string_view numbers, ArchitectureWord& parsed) {
  switch (parsed.kind) {
    case ArchitectureKind::kGqa: {
      const auto heads = parse_count(numbers, kMaxHeads);
      parsed.first = heads.value_or(0);
      return heads.has_value();
    }
    case ArchitectureKind::kMla:
      return numbers.find('+') != std::string_view::npos &&
             parse_pair(numbers, '+', kMaxWidth, parsed);
    case ArchitectureKind::kMultilevel:
      return parse_pair(numbers, ':', kMaxTokens, parsed);
    case ArchitectureKind::kDsa:
    case ArchitectureKind::kQuest:
    case ArchitectureKind::kSwa: {
      const auto tokens = parse_count(numbers, kMaxTokens);
      parsed.first = tokens.value_or(0);
      return tokens.has_value();
    }
    case ArchitectureKind::kDynamic: {
      const auto ratio = parse_ratio(numbers);
      parsed.ratio = ratio.value_or(0);
      return ratio.has_value();
    }
    default:
      return false;  // takes no numbers
  }
}

// The numbers that the layers of an architecture depend on, where the word states none.
std::vector<std::string_view> numbers_of(ArchitectureKind kind) {
  switch (kind) {
    case ArchitectureKind::kMha:
    case ArchitectureKind::kMqa:
      return {"q-heads", "head-dim", "v-head-dim"};
    case ArchitectureKind::kGqa:
      return {"q-heads", "head-dim", "v-head-dim", "kv-heads"};
    case ArchitectureKind::kMla:
      return {"q-heads", "head-dim", "v-head-dim", "latent-dim", "rope-dim"};
    case ArchitectureKind::kDsa:
      return {"q-heads",  "head-dim",    "v-head-dim", "latent-dim",
              "rope-dim", "index-heads", "index-dim",  "top-k"};
    case ArchitectureKind::kCsa:
      return {"q-heads", "head-dim",    "latent-dim", "rope-dim", "group",
              "window",  "index-heads", "index-dim",  "top-k"};
    case ArchitectureKind::kHca:
      return {"q-heads", "head-dim", "latent-dim", "rope-dim", "group", "window"};
    case ArchitectureKind::kMultilevel:
      return {"q-heads", "head-dim", "v-head-dim", "kv-heads", "group", "window"};
    case ArchitectureKind::kDynamic:
      return {"q-heads", "head-dim", "v-head-dim", "kv-heads", "group", "ratio"};
    case ArchitectureKind::kQuest:
    case ArchitectureKind::kMoba:
      return {"q-heads", "head-dim", "v-head-dim", "kv-heads", "group", "top-k"};
    case ArchitectureKind::kNsa:
      return {"q-heads", "head-dim", "v-head-dim", "kv-heads", "group", "top-k", "window"};
    case ArchitectureKind::kSwa:
      return {"q-heads", "head-dim", "v-head-dim", "kv-heads", "window"};
  }
  return {};
}

// The numbers that the word itself states.
std::vector<StatedNumber> stated_by(const ArchitectureWord& word) {
  const auto first = static_cast<double>(word.first);
  const auto second = static_cast<double>(word.second);
  switch (word.kind) {
    case ArchitectureKind::kMqa:
    case ArchitectureKind::kCsa:
    case ArchitectureKind::kHca:
      return {{"kv-heads", 1}};
    case ArchitectureKind::kMla:
      if (word.first == 0) return {{"kv-heads", 1}};
      return {{"kv-heads", 1}, {"latent-dim", first}, {"rope-dim", second}};
    case ArchitectureKind::kDsa:
      if (word.first == 0) return {{"kv-heads", 1}};
      return {{"kv-heads", 1}, {"top-k", first}};
    case ArchitectureKind::kDynamic:
      if (word.ratio == 0) return {};
      return {{"ratio", word.ratio}};
    default:
      break;
  }
  if (word.first == 0) return {};
  switch (word.kind) {
    case ArchitectureKind::kGqa:
      return {{"kv-heads", first}};
    case ArchitectureKind::kQuest:
      return {{"top-k", first}};
    case ArchitectureKind::kMultilevel:
      if (word.second == 0) return {{"group", first}};
      return {{"group", first}, {"window", second}};
    case ArchitectureKind::kSwa:
      return {{"window", first}};
    default:
      return {};
  }
}

}  // namespace

Result<std::vector<std::string_view>> open_numbers(std::string_view word) {
  KVARTO_TRY(const ArchitectureWord parsed, parse_architecture(word));
  std::vector<std::string_view> open = numbers_of(parsed.kind);
  for (const StatedNumber& stated : stated_by(parsed)) {
    open.erase(std::remove(open.begin(), open.end(), stated.name), open.end());
  }
  return open;
}

Result<std::vector<StatedNumber>> stated_numbers(std::string_view word) {
  KVARTO_TRY(const ArchitectureWord parsed, parse_architecture(word));
  return stated_by(parsed);
}

Result<ArchitectureWord> parse_architecture(std::string_view word) {
  const std::size_t colon = word.find(':');
  std::string_view name = word.substr(0, colon);
  ArchitectureWord parsed;
  for (const Alias& alias : kAliases) {
    if (alias.alias != name) continue;
    name = alias.name;
    parsed.notes.emplace_back(alias.note);
    break;
  }
  for (const KnownWord& known : kWords) {
    if (known.name != name) continue;
    parsed.kind = known.kind;
    parsed.name = known.name;
    if (colon != std::string_view::npos && !parse_numbers(word.substr(colon + 1), parsed)) {
      return bad_word(word, known.form);
    }
    return parsed;
  }
  std::string forms;
  for (const KnownWord& known : kWords) {
    forms += forms.empty() ? "one of " : " ";
    forms += known.form;
  }
  return bad_word(word, forms);
}

}  // namespace kvarto
