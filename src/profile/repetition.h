// Repeating a measurement until it is trustworthy.

#pragma once

#include <functional>
#include <vector>

#include "kvarto/measure.h"

namespace kvarto {

// One thing to time, and what came out.
struct TimedWork {
  std::function<void()> run;
  std::size_t num_threads = 1;  // that are busy while it runs
  std::vector<double> quiet_s;  // quiet runs
  std::vector<double> all_s;

  // Quiet runs if there are at least three, else all.
  [[nodiscard]] const std::vector<double>& trusted_s() const;
  [[nodiscard]] double median_s() const;
  [[nodiscard]] Timing timing() const;
};

// Runs all works in turn, again and again, for about `seconds`: drift of the machine then meets
// them alike. Each run of a work that takes less than kMinRunSeconds is repeated inside one timing.
void time_in_turn(std::vector<TimedWork*> works, double seconds);

// Uses the result of a loop that runs for its time alone, so that no compiler leaves the loop out.
void keep_result(float result);

}  // namespace kvarto
