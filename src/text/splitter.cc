#include "text/splitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kvarto {
namespace {

struct Part {
  TextRange range;
  bool is_match = false;
};

// Matches and what lies between them: all of the text.
std::vector<Part> parts_of(std::size_t size, const std::vector<TextRange>& matches,
                           bool is_inverted) {
  std::vector<Part> parts;
  std::size_t at = 0;
  for (const TextRange& match : matches) {
    if (match.begin > at) parts.push_back({{at, match.begin}, is_inverted});
    parts.push_back({match, !is_inverted});
    at = match.end;
  }
  if (at < size) parts.push_back({{at, size}, is_inverted});
  return parts;
}

// Joins a match to its neighbour on the side from which the parts are walked, unless that is a
// match as well.
std::vector<Part> joined(std::vector<Part> parts, bool is_backwards) {
  if (is_backwards) std::reverse(parts.begin(), parts.end());
  std::vector<Part> out;
  bool was_match = false;
  for (const Part& part : parts) {
    if (part.is_match && !was_match && !out.empty()) {
      TextRange& last = out.back().range;
      last = {std::min(last.begin, part.range.begin), std::max(last.end, part.range.end)};
    } else {
      out.push_back(part);
    }
    was_match = part.is_match;
  }
  if (is_backwards) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Part> contiguous(const std::vector<Part>& parts) {
  std::vector<Part> out;
  for (const Part& part : parts) {
    if (!out.empty() && out.back().is_match == part.is_match) {
      out.back().range.end = part.range.end;
    } else {
      out.push_back(part);
    }
  }
  return out;
}

std::vector<Part> behaved(std::vector<Part> parts, SplitStep::Behavior behavior) {
  switch (behavior) {
    case SplitStep::Behavior::kIsolated:
      return parts;
    case SplitStep::Behavior::kRemoved:
      std::erase_if(parts, [](const Part& part) { return part.is_match; });
      return parts;
    case SplitStep::Behavior::kMergedWithPrevious:
      return joined(std::move(parts), false);
    case SplitStep::Behavior::kMergedWithNext:
      return joined(std::move(parts), true);
    case SplitStep::Behavior::kContiguous:
      return contiguous(parts);
  }
  return parts;
}

}  // namespace

Result<Splitter> Splitter::create(const Vocabulary& vocabulary) {
  Splitter splitter;
  for (std::size_t i = 0; i < vocabulary.splits.size(); ++i) {
    const SplitStep& step = vocabulary.splits[i];
    KVARTO_TRY(Pattern pattern,
               Pattern::create(step, fmt::format("{}: pre-tokenizer {}", vocabulary.name, i + 1)));
    splitter.steps_.push_back({std::move(pattern), step.is_inverted, step.behavior});
  }
  return splitter;
}

Result<std::vector<std::string_view>> Splitter::split(std::string_view text) const {
  std::vector<std::string_view> pieces{text};
  if (steps_.empty()) return pieces;
  KVARTO_TRY(MatchState state, MatchState::create(text.size()));
  std::vector<TextRange> matches;
  for (const Step& step : steps_) {
    std::vector<std::string_view> smaller;
    for (const std::string_view piece : pieces) {
      KVARTO_CHECK_OK(step.pattern.find_all(piece, state, matches));
      if (matches.empty() && !step.is_inverted) {
        smaller.push_back(piece);
        continue;
      }
      for (const Part& part :
           behaved(parts_of(piece.size(), matches, step.is_inverted), step.behavior)) {
        smaller.push_back(piece.substr(part.range.begin, part.range.end - part.range.begin));
      }
    }
    pieces = std::move(smaller);
  }
  return pieces;
}

}  // namespace kvarto
