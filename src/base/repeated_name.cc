#include "base/repeated_name.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <vector>

namespace kvarto {

std::optional<std::size_t> repeated_name(std::span<const std::string_view> names) {
  struct Entry {
    std::size_t hash;
    std::size_t index;
  };
  std::vector<Entry> entries;
  entries.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    entries.push_back({std::hash<std::string_view>{}(names[i]), i});
  }
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

}  // namespace kvarto
