// Latencies of a profile's steps.

#pragma once

#include <vector>

#include "kvarto/profile.h"

namespace kvarto {

// The median by nearest rank; 0 for none.
[[nodiscard]] double median_s(std::vector<double> seconds);

// Fills in all but the empty call.
void report_latency(const std::vector<StepRecord>& steps, std::uint64_t warm_up_steps,
                    LatencyReport& report);

}  // namespace kvarto
