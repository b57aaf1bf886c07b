#include <algorithm>
#include <chrono>

#include "kvarto/measure_append.h"

namespace kvarto {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Coefficient of determination of a straight line through (1, y[0]), (2, y[1]), ...
double r_squared_of(const std::vector<double>& y) {
  const auto n = static_cast<double>(y.size());
  double mean_y = 0;
  for (const double value : y) mean_y += value / n;
  const double mean_x = (n + 1) / 2;
  double xy = 0;
  double xx = 0;
  double yy = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double dx = static_cast<double>(i + 1) - mean_x;
    const double dy = y[i] - mean_y;
    xy += dx * dy;
    xx += dx * dx;
    yy += dy * dy;
  }
  return yy > 0 ? xy * xy / (xx * yy) : 0;
}

}  // namespace

Result<BookkeepingTiming> measure_bookkeeping(const ModelSpec& model, std::uint64_t num_tokens,
                                              std::uint64_t block_size) {
  constexpr std::uint64_t kNumSteps = 100;
  CacheOptions options;
  options.context = std::max(num_tokens, kNumSteps);
  options.block_size = block_size;
  options.micro_batch = 1;
  KVARTO_TRY(KvCache cache, KvCache::create(model, options));
  BookkeepingTiming timing;
  timing.num_tokens = options.context / kNumSteps * kNumSteps;
  const SequenceId sequence = *cache.create_sequence();
  const Clock::time_point begin = Clock::now();
  for (std::uint64_t step = 0; step < kNumSteps; ++step) {
    for (std::uint64_t i = 0; i < timing.num_tokens / kNumSteps; ++i) {
      // The pool is sized for the context: a block is always free.
      KVARTO_CHECK_OK(cache.append(sequence, 1));
    }
    timing.elapsed_s.push_back(seconds_since(begin));
  }
  std::vector<double> step_ns;
  for (std::size_t i = 0; i < timing.elapsed_s.size(); ++i) {
    const double step_s = timing.elapsed_s[i] - (i == 0 ? 0 : timing.elapsed_s[i - 1]);
    step_ns.push_back(step_s * 1e9 * kNumSteps / static_cast<double>(timing.num_tokens));
  }
  timing.early_ns_per_token = median({step_ns.begin(), step_ns.begin() + kNumSteps / 10});
  timing.late_ns_per_token = median({step_ns.end() - kNumSteps / 10, step_ns.end()});
  timing.r_squared = r_squared_of(timing.elapsed_s);
  std::uint64_t metadata_bytes = 0;
  std::uint64_t num_blocks = 0;
  for (const TrackUsage& usage : cache.usage()) {
    metadata_bytes += usage.metadata_bytes;
    num_blocks += usage.num_blocks;
  }
  timing.metadata_bytes_per_block =
      num_blocks == 0 ? 0 : static_cast<double>(metadata_bytes) / static_cast<double>(num_blocks);
  return timing;
}

}  // namespace kvarto
