#include "formats/tokenizer_json_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/printable.h"
#include "formats/byte_level_kinds.h"
#include "formats/tokenizer_steps.h"

namespace kvarto {
namespace {

using Behavior = SplitStep::Behavior;

tl::unexpected<Error> unsupported(const Vocabulary& vocabulary, std::string_view path,
                                  std::string_view what) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: {}: found {}, which is not supported", vocabulary.name, path, what));
}

tl::unexpected<Error> bad(const Vocabulary& vocabulary, std::string_view path,
                          std::string_view what) {
  return fail(ErrorCode::kCorruptData, fmt::format("{}: {}: {}", vocabulary.name, path, what));
}

const std::string* string_at(const Value& map, std::string_view key) {
  const Value* value = map.find(key);
  return value != nullptr ? std::get_if<std::string>(&value->data) : nullptr;
}

bool flag_at(const Value& map, std::string_view key, bool otherwise) {
  const Value* value = map.find(key);
  const bool* flag = value != nullptr ? std::get_if<bool>(&value->data) : nullptr;
  return flag != nullptr ? *flag : otherwise;
}

using PartReader =
    std::function<Status(const Value&, const std::string& type, const std::string& path)>;

// Calls `read` for a part, or for each of those that a part of the type Sequence lists.
Status each_part(const Value& part, const std::string& path, std::string_view list_key,
                 const Vocabulary& vocabulary, const PartReader& read) {
  if (part.is_null()) return {};
  const std::string* type = string_at(part, "type");
  if (type == nullptr) return bad(vocabulary, path, "found no type, expected a map with one");
  if (*type != "Sequence") return read(part, *type, path);
  const Value* list = part.find(list_key);
  const auto* parts = list != nullptr ? std::get_if<ValueList>(&list->data) : nullptr;
  if (parts == nullptr) return bad(vocabulary, path, fmt::format("expected a list {}", list_key));
  for (std::size_t i = 0; i < parts->size(); ++i) {
    KVARTO_CHECK_OK(each_part((*parts)[i], fmt::format("{}.{}[{}]", path, list_key, i), list_key,
                              vocabulary, read));
  }
  return {};
}

// The pattern of a Split or Replace: {"String": ...} or {"Regex": ...}.
struct JsonPattern {
  std::string text;
  bool is_literal = false;
};
Result<JsonPattern> pattern_at(const Value& part, const std::string& path,
                               const Vocabulary& vocabulary) {
  const Value* pattern = part.find("pattern");
  if (pattern != nullptr) {
    if (const std::string* text = string_at(*pattern, "String")) return JsonPattern{*text, true};
    if (const std::string* text = string_at(*pattern, "Regex")) return JsonPattern{*text, false};
  }
  return bad(vocabulary, path, "pattern: expected a String or a Regex");
}

Result<Behavior> behavior_at(const Value& part, const std::string& path,
                             const Vocabulary& vocabulary) {
  constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Isolated", Behavior::kIsolated},
      {"Removed", Behavior::kRemoved},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous},
  };
  const std::string* name = string_at(part, "behavior");
  if (name == nullptr) return Behavior::kIsolated;
  for (const auto& [known, behavior] : kBehaviors) {
    if (*name == known) return behavior;
  }
  return bad(vocabulary, path, fmt::format("behavior: found {}", printable(*name)));
}

Status read_normalizer_part(const Value& part, const std::string& type, const std::string& path,
                            Vocabulary& vocabulary) {
  constexpr std::pair<std::string_view, TextStep::Kind> kForms[] = {
      {"NFC", TextStep::Kind::kNfc},
      {"NFD", TextStep::Kind::kNfd},
      {"NFKC", TextStep::Kind::kNfkc},
      {"NFKD", TextStep::Kind::kNfkd},
  };
  for (const auto& [name, kind] : kForms) {
    if (type != name) continue;
    vocabulary.steps.push_back({kind, "", ""});
    return {};
  }
  if (type == "Prepend") {
    const std::string* text = string_at(part, "prepend");
    if (text == nullptr) return bad(vocabulary, path, "prepend: expected a string");
    vocabulary.steps.push_back({TextStep::Kind::kPrepend, "", *text});
    return {};
  }
  if (type == "Replace") {
    KVARTO_TRY(const JsonPattern pattern, pattern_at(part, path, vocabulary));
    const std::string* content = string_at(part, "content");
    if (!pattern.is_literal) return unsupported(vocabulary, path, "a Replace of a Regex");
    if (content == nullptr || pattern.text.empty()) {
      return bad(vocabulary, path, "expected a pattern and a content");
    }
    vocabulary.steps.push_back({TextStep::Kind::kReplace, pattern.text, *content});
    return {};
  }
  return unsupported(vocabulary, path, printable(type));
}

// Reads the steps of a pre-tokenizer. Nothing may follow what spells bytes.
Status read_byte_level(const Value& part, const std::string& path, Vocabulary& vocabulary) {
  if (flag_at(part, "add_prefix_space", true)) {
    if (!vocabulary.splits.empty()) {
      return unsupported(vocabulary, path, "add_prefix_space behind another step");
    }
    vocabulary.prefix = {TextPrefix::Place::kEveryFragment, " ", false};
  }
  if (flag_at(part, "use_regex", true)) {
    vocabulary.splits.push_back({.pattern = std::string(kGpt2Pattern)});
  }
  vocabulary.is_byte_level = true;
  return {};
}

Status read_metaspace(const Value& part, const std::string& path, Vocabulary& vocabulary) {
  const std::string* mark = string_at(part, "replacement");
  if (mark == nullptr || *mark != kSpaceMark) {
    return unsupported(vocabulary, path, "a replacement other than U+2581");
  }
  const std::string* scheme = string_at(part, "prepend_scheme");
  const std::string place = scheme != nullptr                         ? *scheme
                            : flag_at(part, "add_prefix_space", true) ? "always"
                                                                      : "never";
  if (place == "always") {
    vocabulary.prefix = {TextPrefix::Place::kEveryFragment, " ", false};
  } else if (place == "first") {
    vocabulary.prefix = {TextPrefix::Place::kStart, " ", false};
  } else if (place != "never") {
    return bad(vocabulary, path, fmt::format("prepend_scheme: found {}", printable(place)));
  }
  vocabulary.steps.push_back({TextStep::Kind::kReplace, " ", kSpaceMark});
  if (flag_at(part, "split", true)) {
    vocabulary.splits.push_back(
        {.pattern = kSpaceMark, .is_literal = true, .behavior = Behavior::kMergedWithNext});
  }
  return {};
}

Status read_pre_tokenizer_part(const Value& part, const std::string& type, const std::string& path,
                               Vocabulary& vocabulary) {
  if (vocabulary.is_byte_level) return unsupported(vocabulary, path, "a step behind ByteLevel");
  if (type == "ByteLevel") return read_byte_level(part, path, vocabulary);
  if (type == "Metaspace") return read_metaspace(part, path, vocabulary);
  SplitStep step;
  KVARTO_TRY(step.behavior, behavior_at(part, path, vocabulary));
  if (type == "Split") {
    KVARTO_TRY(JsonPattern pattern, pattern_at(part, path, vocabulary));
    step.pattern = std::move(pattern.text);
    step.is_literal = pattern.is_literal;
    step.is_inverted = flag_at(part, "invert", false);
  } else if (type == "Digits") {
    step.pattern = flag_at(part, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)";
    step.behavior = Behavior::kIsolated;
  } else if (type == "Punctuation") {
    step.pattern = R"([\p{P}!-/:-\x40\x5B-`{-~])";
  } else if (type == "Whitespace") {
    step.pattern = R"(\w+|[^\w\s]+)";
    step.is_inverted = true;
    step.behavior = Behavior::kRemoved;
  } else if (type == "WhitespaceSplit") {
    step.pattern = R"(\s+)";
    step.behavior = Behavior::kRemoved;
  } else {
    return unsupported(vocabulary, path, printable(type));
  }
  vocabulary.splits.push_back(std::move(step));
  return {};
}

Result<TokenId> token_named(std::string_view name, std::string_view path,
                            const Vocabulary& vocabulary) {
  const auto& tokens = vocabulary.tokens;
  const auto found = std::find(tokens.begin(), tokens.end(), name);
  if (found == tokens.end() || name.empty()) {
    return bad(vocabulary, path, fmt::format("found {}, expected a token", printable(name)));
  }
  return static_cast<TokenId>(found - tokens.begin());
}

// A template: special tokens before and behind the text.
Status read_template(const Value& part, const std::string& path, Vocabulary& vocabulary) {
  const Value* single = part.find("single");
  const auto* pieces = single != nullptr ? std::get_if<ValueList>(&single->data) : nullptr;
  if (pieces == nullptr) return bad(vocabulary, path, "single: expected a list");
  bool is_behind = false;
  for (const Value& piece : *pieces) {
    const Value* special = piece.find("SpecialToken");
    if (special == nullptr) {
      is_behind = true;
      continue;
    }
    bool& adds = is_behind ? vocabulary.adds_eos : vocabulary.adds_bos;
    if (adds) return unsupported(vocabulary, path, "several tokens before or behind the text");
    const std::string* name = string_at(*special, "id");
    KVARTO_TRY(const TokenId token,
               token_named(name != nullptr ? *name : "", path + ".single", vocabulary));
    adds = true;
    (is_behind ? vocabulary.eos : vocabulary.bos) = token;
  }
  return {};
}

Status read_post_processor_part(const Value& part, const std::string& type, const std::string& path,
                                Vocabulary& vocabulary) {
  if (type == "ByteLevel") return {};  // it moves offsets alone
  if (type == "TemplateProcessing") return read_template(part, path, vocabulary);
  return unsupported(vocabulary, path, printable(type));
}

Status read_decoder_part(const Value& part, const std::string& type, const std::string& path,
                         Vocabulary& vocabulary) {
  // Bytes are always put together, and pieces always joined.
  if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse") return {};
  if (type == "Metaspace") {
    vocabulary.marks_spaces = true;
    const std::string* scheme = string_at(part, "prepend_scheme");
    vocabulary.drops_first_space =
        scheme != nullptr ? *scheme != "never" : flag_at(part, "add_prefix_space", true);
    return {};
  }
  const std::string* content = string_at(part, "content");
  if (type == "Replace") {
    KVARTO_TRY(const JsonPattern pattern, pattern_at(part, path, vocabulary));
    if (pattern.text == kSpaceMark && content != nullptr && *content == " ") {
      vocabulary.marks_spaces = true;
      return {};
    }
  }
  if (type == "Strip" && content != nullptr && *content == " ") {
    vocabulary.drops_first_space = true;
    return {};
  }
  return unsupported(vocabulary, path, printable(type));
}

using PartFunction = Status (*)(const Value&, const std::string&, const std::string&, Vocabulary&);

PartReader into(Vocabulary& vocabulary, PartFunction function) {
  return
      [&vocabulary, function](const Value& part, const std::string& type, const std::string& path) {
        return function(part, type, path, vocabulary);
      };
}

}  // namespace

Status read_json_normalizer(const Value& part, std::string_view path, Vocabulary& vocabulary) {
  return each_part(part, std::string(path), "normalizers", vocabulary,
                   into(vocabulary, read_normalizer_part));
}

Status read_json_pre_tokenizer(const Value& part, std::string_view path, Vocabulary& vocabulary) {
  return each_part(part, std::string(path), "pretokenizers", vocabulary,
                   into(vocabulary, read_pre_tokenizer_part));
}

Status read_json_post_processor(const Value& part, std::string_view path, Vocabulary& vocabulary) {
  return each_part(part, std::string(path), "processors", vocabulary,
                   into(vocabulary, read_post_processor_part));
}

Status read_json_decoder(const Value& part, std::string_view path, Vocabulary& vocabulary) {
  return each_part(part, std::string(path), "decoders", vocabulary,
                   into(vocabulary, read_decoder_part));
}

}  // namespace kvarto
