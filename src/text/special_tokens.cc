#include "text/special_tokens.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvarto {
namespace {

constexpr std::string_view kBlanks = " \t\n\r\v\f";

bool is_special(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUserDefined ||
         kind == TokenKind::kUnknown;
}

}  // namespace

Result<SpecialTokens> SpecialTokens::create(const Vocabulary& vocabulary) {
  SpecialTokens special;
  for (TokenId token = 0; token < vocabulary.tokens.size(); ++token) {
    const std::string& text = vocabulary.tokens[token];
    if (!is_special(vocabulary.kinds[token]) || text.empty()) continue;
    if (text.size() > kMaxSpecialBytes) {
      return fail(ErrorCode::kCorruptData,
                  fmt::format("{}: {}[{}]: found a special token of {} bytes, expected at most {}",
                              vocabulary.name, vocabulary.tokens_key, token, text.size(),
                              kMaxSpecialBytes));
    }
    Entry entry{text, token};
    entry.is_control = vocabulary.kinds[token] != TokenKind::kUserDefined;
    special.entries_.push_back(entry);
  }
  std::vector<Entry>& entries = special.entries_;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.text != b.text ? a.text < b.text : a.token < b.token;
  });
  entries.erase(std::unique(entries.begin(), entries.end(),
                            [](const Entry& a, const Entry& b) { return a.text == b.text; }),
                entries.end());
  for (const TokenTrim& trim : vocabulary.trims) {
    for (Entry& entry : entries) {
      if (entry.token != trim.token) continue;
      entry.trims_left = trim.has_left;
      entry.trims_right = trim.has_right;
    }
  }
  for (const Entry& entry : entries) {
    ++special.first_[static_cast<unsigned char>(entry.text[0]) + 1u];
  }
  for (std::size_t i = 1; i < special.first_.size(); ++i) {
    special.first_[i] += special.first_[i - 1];
  }
  return special;
}

const SpecialTokens::Entry* SpecialTokens::longest_at(std::string_view rest,
                                                      bool parses_control) const {
  const auto byte = static_cast<unsigned char>(rest[0]);
  const Entry* low = entries_.data() + first_[byte];
  const Entry* high = entries_.data() + first_[byte + 1u];
  const Entry* best = nullptr;
  // All entries in [low, high) begin with the first `depth` bytes of the rest.
  for (std::size_t depth = 1; low != high; ++depth) {
    if (low->text.size() == depth) {
      if (parses_control || !low->is_control) best = low;
      ++low;
    }
    if (depth == rest.size()) break;
    const auto wanted = static_cast<unsigned char>(rest[depth]);
    const auto at_depth = [depth](const Entry& entry) {
      return static_cast<unsigned char>(entry.text[depth]);
    };
    low = std::partition_point(low, high, [&](const Entry& e) { return at_depth(e) < wanted; });
    high = std::partition_point(low, high, [&](const Entry& e) { return at_depth(e) == wanted; });
  }
  return best;
}

std::vector<TextFragment> SpecialTokens::partition(std::string_view text,
                                                   bool parses_control) const {
  std::vector<TextFragment> fragments;
  std::size_t begin = 0;  // of the text that no fragment holds yet
  for (std::size_t at = 0; at < text.size();) {
    const Entry* entry = longest_at(text.substr(at), parses_control);
    if (entry == nullptr) {
      ++at;
      continue;
    }
    std::string_view before = text.substr(begin, at - begin);
    if (entry->trims_left) before = before.substr(0, before.find_last_not_of(kBlanks) + 1);
    if (!before.empty()) fragments.push_back({std::nullopt, before});
    fragments.push_back({entry->token, {}});
    at += entry->text.size();
    if (entry->trims_right) at = std::min(text.find_first_not_of(kBlanks, at), text.size());
    begin = at;
  }
  if (begin < text.size()) fragments.push_back({std::nullopt, text.substr(begin)});
  return fragments;
}

}  // namespace kvarto
