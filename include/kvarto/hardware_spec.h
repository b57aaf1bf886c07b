// A device as the planner sees it: memory, bandwidth, peak rates. Plain data.

#pragma once

#include <cstdint>
#include <string>

namespace kvarto {

struct HardwareSpec {
  std::string name;  // catalogue name, e.g. "h100-sxm-80gb"
  std::uint64_t memory_bytes = 0;
  double bandwidth_bytes_per_s = 0;  // of the memory that holds the cache
  double flop_per_s_16bit = 0;       // dense peak of 16-bit matrix arithmetic
  double flop_per_s_8bit = 0;        // 0 = not stated
  std::string source;                // where the figures come from
};

}  // namespace kvarto
