#include "profile/repetition.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>

namespace kvarto {
namespace {

// Shorter runs are dominated by the clock and by the first touch of cold code.
constexpr double kMinRunSeconds = 2e-4;
constexpr double kQuietShare = 0.96;
constexpr std::size_t kMinRuns = 5;
constexpr std::size_t kMaxRuns = 2000;
// How much longer than asked a measurement may last to get kMinRuns quiet runs.
constexpr double kPatience = 3;

std::atomic<float> g_result;  // of loops on several threads

double wall_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double process_cpu_s() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Value below which `share` of the sorted values lie.
double quantile(const std::vector<double>& sorted, double share) {
  const auto index = static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5);
  return sorted[std::min(index, sorted.size() - 1)];
}

std::size_t runs_per_timing(const TimedWork& work) {
  const double start = wall_s();
  work.run();
  const double once = wall_s() - start;
  return once >= kMinRunSeconds
             ? 1
             : static_cast<std::size_t>(kMinRunSeconds / std::max(once, 1e-8)) + 1;
}

void time_once(TimedWork& work, std::size_t runs) {
  const double cpu_before = process_cpu_s();
  const double before = wall_s();
  for (std::size_t i = 0; i < runs; ++i) work.run();
  const double wall = wall_s() - before;
  const double cpu = process_cpu_s() - cpu_before;
  const double each = wall / static_cast<double>(runs);
  work.all_s.push_back(each);
  if (cpu >= kQuietShare * static_cast<double>(work.num_threads) * wall) {
    work.quiet_s.push_back(each);
  }
}

}  // namespace

Timing summarise(std::span<const double> seconds) {
  std::vector<double> sorted(seconds.begin(), seconds.end());
  std::sort(sorted.begin(), sorted.end());
  double mean = 0;
  for (const double s : sorted) mean += s / static_cast<double>(sorted.size());
  double variance = 0;
  for (const double s : sorted) {
    variance += (s - mean) * (s - mean) / static_cast<double>(sorted.size());
  }
  Timing timing;
  timing.median_us = quantile(sorted, 0.5) * 1e6;
  timing.p99_us = quantile(sorted, 0.99) * 1e6;
  timing.stddev_us = std::sqrt(variance) * 1e6;
  timing.runs = timing.runs_total = sorted.size();
  return timing;
}

const std::vector<double>& TimedWork::trusted_s() const {
  return quiet_s.size() >= 3 ? quiet_s : all_s;
}

double TimedWork::median_s() const { return summarise(trusted_s()).median_us * 1e-6; }

Timing TimedWork::timing() const {
  Timing timing = summarise(trusted_s());
  timing.runs_total = all_s.size();
  return timing;
}

void time_in_turn(std::vector<TimedWork*> works, double seconds) {
  std::vector<std::size_t> runs;
  for (TimedWork* work : works) {
    work->run();  // warm-up
    runs.push_back(runs_per_timing(*work));
  }
  const double start = wall_s();
  for (std::size_t round = 0; round < kMaxRuns; ++round) {
    for (std::size_t i = 0; i < works.size(); ++i) time_once(*works[i], runs[i]);
    const double elapsed = wall_s() - start;
    bool is_quiet = true;
    for (const TimedWork* work : works) is_quiet &= work->quiet_s.size() >= kMinRuns;
    if (round + 1 < kMinRuns) continue;
    if (elapsed >= seconds && (is_quiet || elapsed >= kPatience * seconds)) return;
  }
}

void keep_result(float result) { g_result.store(result, std::memory_order_relaxed); }

}  // namespace kvarto
