// Finds a name that occurs twice among many.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace kvarto {

// Returns the index of the later of two equal names, or nullopt if all differ. O(n log n) for any
// names: a table of hashes could be driven to O(n * n) by names chosen to collide.
// Requires: fewer than 2^32 names.
[[nodiscard]] std::optional<std::size_t> repeated_name(std::span<const std::string_view> names);

}  // namespace kvarto
