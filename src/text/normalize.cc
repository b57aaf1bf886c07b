#include "text/normalize.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <utility>

namespace kvarto {
namespace {

// A form of Unicode normalisation (Unicode Standard Annex 15).
Result<std::string> in_form(const std::string& text, TextStep::Kind kind,
                            const std::string& where) {
  int options = UTF8PROC_STABLE;
  const bool is_composed = kind == TextStep::Kind::kNfc || kind == TextStep::Kind::kNfkc;
  const bool is_compatible = kind == TextStep::Kind::kNfkc || kind == TextStep::Kind::kNfkd;
  options |= is_composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (is_compatible) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(mapped, std::free);
  if (size < 0) {
    return fail(ErrorCode::kOutOfMemory,
                where + ": the text cannot be normalised: " + utf8proc_errmsg(size));
  }
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(size));
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  std::string out;
  out.reserve(text.size());
  std::size_t at = 0;
  for (std::size_t found = text.find(from); found != std::string::npos;
       found = text.find(from, at)) {
    out.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  return out.append(text, at);
}

}  // namespace

Result<std::string> normalized(std::string_view text, const Vocabulary& vocabulary) {
  std::string out(text);
  for (const TextStep& step : vocabulary.steps) {
    switch (step.kind) {
      case TextStep::Kind::kReplace:
        out = replaced(out, step.from, step.to);
        break;
      case TextStep::Kind::kPrepend:
        if (!out.empty()) out.insert(0, step.to);
        break;
      default: {
        KVARTO_TRY(out, in_form(out, step.kind, vocabulary.name));
        break;
      }
    }
  }
  return out;
}

std::string with_single_spaces(std::string_view text, bool is_first, bool is_last) {
  std::string out;
  for (const char c : text) {
    const bool is_dropped = out.empty() ? is_first : out.back() == ' ';
    if (c != ' ' || !is_dropped) out += c;
  }
  if (is_last && out.ends_with(' ')) out.pop_back();
  return out;
}

}  // namespace kvarto
