// The rows of the largest scores, in time linear in their number.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvarto {

// Scratch of one thread.
struct TopKScratch {
  std::vector<std::uint32_t> keys;
  std::vector<std::uint32_t> candidates;
};

// Writes the numbers of the `out.size()` largest scores to `out`, ascending. Of equal scores those
// of the lower number; -0 equals 0; NaN comes last.
// Requires: out.size() <= scores.size() < 2^32.
void select_largest(std::span<const float> scores, std::span<std::uint32_t> out,
                    TopKScratch& scratch);

}  // namespace kvarto
