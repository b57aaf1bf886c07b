#include "profile/hardware_counters.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace kvarto {
namespace {

struct Event {
  const char* name;
  std::uint32_t type;
  std::uint64_t config;
};

constexpr std::uint64_t kDtlbReadMisses = PERF_COUNT_HW_CACHE_DTLB |
                                          PERF_COUNT_HW_CACHE_OP_READ << 8 |
                                          PERF_COUNT_HW_CACHE_RESULT_MISS << 16;

constexpr Event kEvents[] = {
    {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {"last_level_cache_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {"dtlb_read_misses", PERF_TYPE_HW_CACHE, kDtlbReadMisses},
};

int open_event(const Event& event) {
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  attributes.type = event.type;
  attributes.config = event.config;
  attributes.disabled = 1;
  attributes.inherit = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  return static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

HardwareCounters::HardwareCounters() {
  for (const Event& event : kEvents) {
    const int descriptor = open_event(event);
    if (descriptor >= 0) {
      counters_.push_back({event.name, descriptor});
    } else if (refusal_.empty()) {
      refusal_ =
          fmt::format("not available: perf_event_open: {}", std::system_category().message(errno));
    }
  }
  if (!counters_.empty()) refusal_.clear();
}

HardwareCounters::~HardwareCounters() {
  for (const Counter& counter : counters_) close(counter.descriptor);
}

void HardwareCounters::start() {
  for (const Counter& counter : counters_) ioctl(counter.descriptor, PERF_EVENT_IOC_ENABLE, 0);
}

void HardwareCounters::stop() {
  for (const Counter& counter : counters_) ioctl(counter.descriptor, PERF_EVENT_IOC_DISABLE, 0);
}

std::vector<CounterValue> HardwareCounters::values(std::uint64_t num_steps) const {
  std::vector<CounterValue> values;
  for (const Counter& counter : counters_) {
    struct {
      std::uint64_t value, enabled, running;
    } found{};
    if (read(counter.descriptor, &found, sizeof(found)) != sizeof(found)) continue;
    if (found.running == 0 || num_steps == 0) continue;
    // The kernel takes turns where there are fewer counters than events.
    const double scale = static_cast<double>(found.enabled) / static_cast<double>(found.running);
    values.push_back(
        {counter.name, static_cast<double>(found.value) * scale / static_cast<double>(num_steps)});
  }
  return values;
}

}  // namespace kvarto
