// Merging against the plainest way to do it, and properties of decoding.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvarto/tokenizer.h"
#include "samples/vocabularies.h"

namespace kvarto {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Pieces of "abc", each the concatenation of two others; the same piece may come from several.
Pairs random_pairs() {
  Pairs pairs;
  std::vector<std::string> pieces{"a", "b", "c"};
  std::set<std::string> known(pieces.begin(), pieces.end());
  const int num_pairs = *rc::gen::inRange(0, 24);
  for (int i = 0; i < num_pairs; ++i) {
    const std::string left = *rc::gen::elementOf(pieces);
    const std::string right = *rc::gen::elementOf(pieces);
    if (left.size() + right.size() > 12 || !known.insert(left + right).second) continue;
    pairs.emplace_back(left, right);
    pieces.push_back(left + right);
  }
  return pairs;
}

std::string random_text() {
  return *rc::gen::container<std::string>(rc::gen::elementOf(std::string("abc")));
}

// Looks through all neighbours again and again: joins the first of those that `order_of` puts
// first.
template <typename OrderOf>
std::vector<std::string> plainly_merged(const std::string& text, OrderOf&& order_of) {
  std::vector<std::string> pieces;
  for (const char c : text) pieces.emplace_back(1, c);
  while (true) {
    std::size_t best = 0;
    std::size_t best_order = std::numeric_limits<std::size_t>::max();
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
      const std::size_t order = order_of(pieces[i], pieces[i + 1]);
      if (order >= best_order) continue;
      best = i;
      best_order = order;
    }
    if (best_order == std::numeric_limits<std::size_t>::max()) return pieces;
    pieces[best] += pieces[best + 1];
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> pieces;
  const auto tokens = tokenizer.encode(text, {.adds_ends = false});
  RC_ASSERT(tokens.has_value());
  for (const TokenId token : *tokens) {
    pieces.emplace_back(tokenizer.bytes_of(token));
  }
  return pieces;
}

RC_GTEST_PROP(RankedMerges, AreThoseOfLookingThroughAllNeighbours, ()) {
  const Pairs pairs = random_pairs();
  const std::string text = random_text();
  const auto tokenizer = Tokenizer::create(samples::byte_vocabulary(pairs));
  RC_ASSERT(tokenizer.has_value());
  const auto expected =
      plainly_merged(text, [&](const std::string& left, const std::string& right) {
        for (std::size_t rank = 0; rank < pairs.size(); ++rank) {
          if (pairs[rank].first == left && pairs[rank].second == right) return rank;
        }
        return std::numeric_limits<std::size_t>::max();
      });
  RC_ASSERT(pieces_of(*tokenizer, text) == expected);
}

RC_GTEST_PROP(ScoredMerges, AreThoseOfLookingThroughAllNeighbours, ()) {
  std::vector<std::string> pieces{"a", "b", "c"};
  for (const auto& [left, right] : random_pairs()) pieces.push_back(left + right);
  Vocabulary vocabulary = samples::scored_vocabulary(pieces);
  vocabulary.prefix.place = TextPrefix::Place::kNever;
  const std::string text = random_text();
  const auto tokenizer = Tokenizer::create(std::move(vocabulary));
  RC_ASSERT(tokenizer.has_value());
  const auto expected =
      plainly_merged(text, [&](const std::string& left, const std::string& right) {
        for (std::size_t i = 0; i < pieces.size(); ++i) {
          if (pieces[i] == left + right) return i;
        }
        return std::numeric_limits<std::size_t>::max();
      });
  RC_ASSERT(pieces_of(*tokenizer, text) == expected);
}

RC_GTEST_PROP(Decoding, PiecesOfAStreamAreTheWholeText, ()) {
  static const Tokenizer tokenizer = *Tokenizer::create(samples::byte_vocabulary({}));
  const auto bytes = *rc::gen::arbitrary<std::vector<std::uint8_t>>();
  const std::vector<TokenId> tokens(bytes.begin(), bytes.end());
  std::string streamed;
  TokenDecoder decoder(tokenizer);
  for (const TokenId token : tokens) streamed += decoder.add(token);
  streamed += decoder.finish();
  RC_ASSERT(streamed == tokenizer.decode(tokens));
  // What is valid comes back as it was; what is not is never longer than one U+FFFD a byte.
  const auto again = tokenizer.encode(streamed, {.adds_ends = false});
  RC_ASSERT(again.has_value());
  RC_ASSERT(streamed.size() <= 3 * bytes.size());
}

}  // namespace
}  // namespace kvarto
