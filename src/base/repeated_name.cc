#include "base/repeated_name.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <vector>

namespace kvarto {
namespace {

struct Entry {
  std::size_t hash;
  std::size_t index;
};

// Sorts entries by name and returns the later of the first two that are equal.
std::optional<std::size_t> repeated_among(std::span<Entry> entries,
                                          std::span<const std::string_view> names) {
  // Hashes first: names of one model share long beginnings and are slow to compare.
  std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    if (a.hash != b.hash) return a.hash < b.hash;
    const int order = names[a.index].compare(names[b.index]);
    return order != 0 ? order < 0 : a.index < b.index;
  });
  const auto twin =
      std::adjacent_find(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
        return a.hash == b.hash && names[a.index] == names[b.index];
      });
  if (twin == entries.end()) return std::nullopt;
  return std::next(twin)->index;
}

}  // namespace

std::optional<std::size_t> repeated_name(std::span<const std::string_view> names) {
  if (names.size() < 2) return std::nullopt;
  // Entries are spread over buckets by their hash; each bucket, usually of one or two, is sorted.
  const std::size_t num_buckets = std::bit_ceil(names.size());
  std::vector<std::uint32_t> ends(num_buckets + 1, 0);
  std::vector<std::size_t> hashes;
  hashes.reserve(names.size());
  for (const std::string_view name : names) {
    hashes.push_back(std::hash<std::string_view>{}(name));
    ++ends[(hashes.back() & (num_buckets - 1)) + 1];
  }
  for (std::size_t b = 1; b <= num_buckets; ++b) ends[b] += ends[b - 1];
  std::vector<Entry> entries(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    entries[ends[hashes[i] & (num_buckets - 1)]++] = {hashes[i], i};
  }
  std::size_t start = 0;
  for (std::size_t b = 0; b < num_buckets; ++b) {
    const std::size_t end = ends[b];
    if (end - start > 1) {
      const auto twin = repeated_among(std::span(entries).subspan(start, end - start), names);
      if (twin) return twin;
    }
    start = end;
  }
  return std::nullopt;
}

}  // namespace kvarto
