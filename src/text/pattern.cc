#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace kvarto {
namespace {

// White space as Unicode defines it (PropList.txt, White_Space). The library's own \s has U+180E as
// well, which the authors of these patterns had not.
constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// The pattern with \s, and \S outside a class, written as kSpaces.
std::string with_unicode_spaces(std::string_view pattern) {
  std::string out;
  bool is_in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (c == '[') is_in_class = true;
      if (c == ']') is_in_class = false;
      out += c;
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      out += is_in_class ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
    } else if (escaped == 'S' && !is_in_class) {
      out += fmt::format("[^{}]", kSpaces);
    } else {
      out += c;
      out += escaped;
    }
  }
  return out;
}

constexpr std::size_t kMaxPatternBytes = 1 << 16;
// Patterns that backtrack keep their alternatives here: enough for a text of a megabyte.
constexpr std::size_t kMinStackBytes = 32 << 10;
constexpr std::size_t kMaxStackBytes = 32 << 20;
constexpr std::uint32_t kMaxSteps = 10'000'000;  // from one place of the text; a tenth of a second
constexpr std::uint32_t kMaxHeapKibibytes = 64 << 10;
// Steps are limited from each place alone, so that the time for all of a text is limited as well.
// Published patterns take less than a microsecond a byte.
constexpr double kMinSeconds = 20;
constexpr double kSecondsPerByte = 20e-6;
// Places at which one search may begin, between looks at the clock.
constexpr std::size_t kSearchBytes = 4096;

class Deadline {
 public:
  explicit Deadline(std::size_t text_bytes)
      : end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                 kMinSeconds + kSecondsPerByte * static_cast<double>(text_bytes)))) {}

  // Looks at the clock now and then.
  [[nodiscard]] bool is_over() {
    if (++num_calls_ % kCallsPerLook != 0) return false;
    return Clock::now() > end_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t kCallsPerLook = 16;
  Clock::time_point end_;
  std::uint64_t num_calls_ = 0;
};

template <auto Release>
struct Releasing {
  template <typename T>
  void operator()(T* object) const {
    Release(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Releasing<pcre2_code_free>>;
using Match = std::unique_ptr<pcre2_match_data, Releasing<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Releasing<pcre2_match_context_free>>;
using Stack = std::unique_ptr<pcre2_jit_stack, Releasing<pcre2_jit_stack_free>>;

// The place behind the character that `at` lies in.
std::size_t after_character(std::string_view text, std::size_t at) {
  ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

std::string message_of(int code) {
  unsigned char text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Compiled {
  Code code;
  std::string where;
};

Pattern::Pattern(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

Result<Pattern> Pattern::create(const SplitStep& step, std::string_view where) {
  if (step.pattern.empty() || step.pattern.size() > kMaxPatternBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: found a pattern of {} bytes, expected 1 to {}", where,
                            step.pattern.size(), kMaxPatternBytes));
  }
  const std::string text = step.is_literal ? step.pattern : with_unicode_spaces(step.pattern);
  const std::uint32_t options =
      PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT |
      (step.is_literal ? PCRE2_LITERAL
                       : PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C);
  int error = 0;
  std::size_t offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options, &error,
                          &offset, nullptr));
  if (code == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: found a pattern with an error: {}", where, message_of(error)));
  }
  // Where the system forbids code made at run time, matching is slower and equal.
  (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  auto compiled = std::make_unique<Compiled>();
  compiled->code = std::move(code);
  compiled->where = where;
  return Pattern(std::move(compiled));
}

struct MatchState::Parts {
  explicit Parts(std::size_t text_bytes)
      : match(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kMinStackBytes, kMaxStackBytes, nullptr)),
        deadline(text_bytes) {}

  Match match;
  MatchContext context;
  Stack stack;
  Deadline deadline;
};

MatchState::MatchState(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
MatchState::~MatchState() = default;
MatchState::MatchState(MatchState&&) noexcept = default;
MatchState& MatchState::operator=(MatchState&&) noexcept = default;

Result<MatchState> MatchState::create(std::size_t text_bytes) {
  auto parts = std::make_unique<Parts>(text_bytes);
  if (parts->match == nullptr || parts->context == nullptr || parts->stack == nullptr) {
    return fail(ErrorCode::kOutOfMemory, "no memory to match the patterns of a tokenizer");
  }
  pcre2_set_match_limit(parts->context.get(), kMaxSteps);
  pcre2_set_heap_limit(parts->context.get(), kMaxHeapKibibytes);
  pcre2_jit_stack_assign(parts->context.get(), nullptr, parts->stack.get());
  return MatchState(std::move(parts));
}

Status Pattern::find_all(std::string_view text, MatchState& state,
                         std::vector<TextRange>& matches) const {
  matches.clear();
  auto& [match, context, stack, deadline] = *state.parts_;
  for (std::size_t at = 0; at < text.size();) {
    if (deadline.is_over()) return too_slow(message_of(PCRE2_ERROR_MATCHLIMIT));
    const std::size_t last = std::min(at + kSearchBytes, text.size());
    pcre2_set_offset_limit(context.get(), last);
    const int count = pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), context.get());
    if (count == PCRE2_ERROR_NOMATCH) {
      at = after_character(text, last);
      continue;
    }
    if (count < 0) return too_slow(message_of(count));
    const std::size_t* ends = pcre2_get_ovector_pointer(match.get());
    if (ends[1] > ends[0]) matches.push_back({ends[0], ends[1]});
    at = ends[1] > ends[0] ? ends[1] : after_character(text, ends[1]);
  }
  return {};
}

tl::unexpected<Error> Pattern::too_slow(std::string_view reason) const {
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: the pattern cannot be matched: {}", compiled_->where, reason));
}

}  // namespace kvarto
