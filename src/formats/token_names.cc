#include "formats/token_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/printable.h"

namespace kvarto {
namespace {

// Those that published chat models end a turn or a text with.
constexpr std::string_view kEnds[] = {
    "<|eot_id|>",    "<|eom_id|>",    "<|im_end|>",      "<|end|>",
    "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|return|>",
    "<|call|>",      "<EOT>",         "[EOT]",           "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
};

}  // namespace

void add_ends_by_name(Vocabulary& vocabulary) {
  std::vector<TokenId>& ends = vocabulary.ends;
  const auto add = [&ends](TokenId token) {
    if (std::find(ends.begin(), ends.end(), token) == ends.end()) ends.push_back(token);
  };
  if (vocabulary.eos.has_value()) add(*vocabulary.eos);
  for (TokenId token = 0; token < vocabulary.tokens.size(); ++token) {
    const TokenKind kind = vocabulary.kinds[token];
    if (kind != TokenKind::kControl && kind != TokenKind::kUserDefined) continue;
    const std::string& name = vocabulary.tokens[token];
    if (std::find(std::begin(kEnds), std::end(kEnds), name) != std::end(kEnds)) add(token);
  }
}

MergeReader::MergeReader(const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), tokens_(vocabulary.tokens) {
  for (TokenId token = 0; token < vocabulary.tokens.size(); ++token) tokens_.add(token);
}

Result<TokenId> MergeReader::token_of(std::string_view name, std::string_view key) const {
  const auto token = tokens_.find(name);
  if (token.has_value() && !name.empty()) return *token;
  return fail(ErrorCode::kCorruptData,
              fmt::format("{}: {}: found \"{}\", expected a token of {}", vocabulary_.name, key,
                          printable(name), vocabulary_.tokens_key));
}

Result<TokenMerge> MergeReader::merge(std::string_view left, std::string_view right,
                                      std::string_view key) const {
  TokenMerge merge;
  KVARTO_TRY(merge.left, token_of(left, key));
  KVARTO_TRY(merge.right, token_of(right, key));
  KVARTO_TRY(merge.merged, token_of(std::string(left).append(right), key));
  return merge;
}

Result<TokenMerge> MergeReader::merge(std::string_view both, std::string_view key) const {
  // A token has at least one byte, which may itself be a space.
  const std::size_t space = both.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == both.size()) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: {}: found \"{}\", expected two tokens with a space between them",
                            vocabulary_.name, key, printable(both)));
  }
  return merge(both.substr(0, space), both.substr(space + 1), key);
}

}  // namespace kvarto
