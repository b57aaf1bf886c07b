// Joins neighbouring symbols of a text, the best pair first: the core of byte-pair encoding.

#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "kvarto/vocabulary.h"

namespace kvarto {

inline constexpr TokenId kNoToken = 0xFFFF'FFFF;

// A run of the text. Joined ones become longer; those that were joined to their left have length 0.
struct Symbol {
  std::uint32_t begin = 0;
  std::uint32_t length = 0;  // bytes
  std::int32_t previous = -1;
  std::int32_t next = -1;
  TokenId token = kNoToken;
};

// What two neighbours would become.
struct Joined {
  double order = 0;  // the lowest is joined first
  TokenId token = kNoToken;
};

// Joins until no pair can be. Of pairs with equal order, the leftmost is first.
//   join  (left, right) -> std::optional<Joined>
// Requires: symbols are linked in their order and lie side by side. O(n log n), and at most three
// calls of `join` a symbol.
template <typename Join>
void merge_symbols(std::vector<Symbol>& symbols, Join&& join) {
  struct Candidate {
    Joined joined;
    std::int32_t left = 0;
    std::int32_t right = 0;
    std::uint32_t length = 0;  // of both, by which a candidate whose symbols changed is known
  };
  const auto is_later = [](const Candidate& a, const Candidate& b) {
    return a.joined.order != b.joined.order ? a.joined.order > b.joined.order : a.left > b.left;
  };
  std::vector<Candidate> found;
  const auto candidate_of = [&](std::int32_t left) -> std::optional<Candidate> {
    if (left < 0 || symbols[left].next < 0) return std::nullopt;
    const std::int32_t right = symbols[left].next;
    const std::optional<Joined> joined = join(symbols[left], symbols[right]);
    if (!joined.has_value()) return std::nullopt;
    return Candidate{*joined, left, right, symbols[left].length + symbols[right].length};
  };
  for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(symbols.size()); ++i) {
    if (const auto candidate = candidate_of(i)) found.push_back(*candidate);
  }
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(is_later)> queue(
      is_later, std::move(found));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) {
      continue;
    }
    left.length = best.length;
    left.token = best.joined.token;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    if (const auto candidate = candidate_of(left.previous)) queue.push(*candidate);
    if (const auto candidate = candidate_of(best.left)) queue.push(*candidate);
  }
}

}  // namespace kvarto
