#include "formats/name_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

namespace kvarto {
namespace {

// Longer queries are not compared letter by letter; no catalogue name comes near this length.
constexpr std::size_t kMaxComparedLength = 64;
// Longest part of a query that a message repeats.
constexpr std::size_t kMaxQuotedLength = 80;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// Edits that turn one text into the other, where whatever follows the end of the shorter match is
// free: "llama3.1" is one edit from "llama-3.1-8b", "llama-3.1-8b-instruct" none.
std::size_t prefix_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  std::size_t best = row.back();
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
    best = std::min(best, row.back());
  }
  return std::min(best, *std::min_element(row.begin(), row.end()));
}

std::size_t distance(std::string_view query, std::string_view name) {
  if (query.find(name) != std::string_view::npos || name.find(query) != std::string_view::npos) {
    return 0;
  }
  return prefix_distance(query, name);
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const auto [end, unused] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(end - a.begin());
}

// Names that resemble `query`, most alike first; none that differs in more than a third of itself
// or of the query.
std::vector<std::size_t> similar_names(std::string_view query,
                                       std::span<const std::string_view> names) {
  struct Candidate {
    std::ptrdiff_t badness;
    std::size_t index;
    bool operator<(const Candidate& other) const {
      return badness != other.badness ? badness < other.badness : index < other.index;
    }
  };
  std::vector<Candidate> candidates;
  if (query.empty() || query.size() > kMaxComparedLength) return {};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t edits = distance(query, names[i]);
    if (3 * edits <= std::min(query.size(), names[i].size())) {
      // An equal beginning outweighs a few edits behind it: mistral-7b-instruct is nearer to
      // mistral-7b-v0.1 than to mixtral-8x7b.
      candidates.push_back({static_cast<std::ptrdiff_t>(2 * edits) -
                                static_cast<std::ptrdiff_t>(common_prefix(query, names[i])),
                            i});
    }
  }
  std::sort(candidates.begin(), candidates.end());
  std::vector<std::size_t> indices;
  for (const Candidate& candidate : candidates) indices.push_back(candidate.index);
  return indices;
}

std::string listing(const std::vector<std::size_t>& indices,
                    std::span<const std::string_view> names) {
  std::string text;
  const std::size_t num_listed = std::min(indices.size(), kMaxListedNames);
  for (std::size_t i = 0; i < num_listed; ++i) {
    if (i > 0) text += ", ";
    text += names[indices[i]];
  }
  if (indices.size() > num_listed) text += fmt::format(" and {} more", indices.size() - num_listed);
  return text;
}

}  // namespace

Result<std::size_t> match_name(std::string_view query, std::string_view kind,
                               std::span<const std::string_view> names) {
  const std::string wanted = lower(query);
  std::vector<std::size_t> completions;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == wanted) return i;
    if (names[i].starts_with(wanted)) completions.push_back(i);
  }
  if (completions.size() == 1) return completions.front();

  const std::string_view quoted = query.substr(0, kMaxQuotedLength);
  if (!completions.empty()) {
    std::stable_sort(completions.begin(), completions.end(), [&](std::size_t a, std::size_t b) {
      return names[a].size() < names[b].size();
    });
    return fail(
        ErrorCode::kNotFound,
        fmt::format("catalogue: {} \"{}\": found {} names that begin so, expected one of: {}", kind,
                    quoted, completions.size(), listing(completions, names)));
  }
  const std::vector<std::size_t> similar = similar_names(wanted, names);
  if (similar.empty()) {
    return fail(
        ErrorCode::kNotFound,
        fmt::format("catalogue: {} \"{}\": found no such name, expected one of the {} listed "
                    "by `kvarto models{}`",
                    kind, quoted, names.size(), kind == "device" ? " --devices" : ""));
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("catalogue: {} \"{}\": found no such name, closest: {}", kind, quoted,
                          listing(similar, names)));
}

}  // namespace kvarto
