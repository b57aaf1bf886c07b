// Counters of the processor, through perf_event_open(2), where the kernel allows it.

#pragma once

#include <string>
#include <vector>

#include "kvarto/profile.h"

namespace kvarto {

// Counts this thread and the threads that it starts afterwards, in user space. Not thread-safe; one
// owner.
class HardwareCounters {
 public:
  // Opens what can be opened; all stand still until start().
  HardwareCounters();
  ~HardwareCounters();
  HardwareCounters(const HardwareCounters&) = delete;
  HardwareCounters& operator=(const HardwareCounters&) = delete;

  void start();
  void stop();
  // Divided by `num_steps`. Counters that the kernel never scheduled are left out.
  [[nodiscard]] std::vector<CounterValue> values(std::uint64_t num_steps) const;
  // Why there are none; empty if there are some.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

 private:
  struct Counter {
    const char* name;
    int descriptor;
  };
  std::vector<Counter> counters_;
  std::string refusal_;
};

}  // namespace kvarto
