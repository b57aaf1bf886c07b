// Latencies of steps: order statistics, spread, and what made the slowest ones slow.

#include "profile/latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace kvarto {
namespace {

constexpr double kMicro = 1e6;
constexpr std::size_t kNumResamples = 400;
constexpr double kConfidence = 0.95;
constexpr std::size_t kNumSlowest = 5;

// The smallest value that at least `share` of the sorted values do not exceed.
double nearest_rank(const std::vector<double>& sorted, double share) {
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double stddev_of(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

std::string cause_of(const StepRecord& step) {
  std::string cause;
  const auto add = [&](const std::string& part) {
    if (!cause.empty()) cause += ", ";
    cause += part;
  };
  if (step.counts.blocks_taken > 0) {
    add(fmt::format("{} block{} allocated", step.counts.blocks_taken,
                    step.counts.blocks_taken == 1 ? "" : "s"));
  }
  if (step.minor_faults + step.major_faults > 0) {
    add(fmt::format("{} page fault{}", step.minor_faults + step.major_faults,
                    step.minor_faults + step.major_faults == 1 ? "" : "s"));
  }
  if (step.switches > 0) {
    add(fmt::format("other load took the processor {} time{}", step.switches,
                    step.switches == 1 ? "" : "s"));
  }
  return cause.empty() ? "nothing seen: load on the memory or clock of the machine" : cause;
}

using Seconds = double (*)(const StepRecord& step);

struct Phase {
  const char* name;
  Seconds seconds;
};

constexpr const char* kIndexPhase = "index";

constexpr Phase kPhases[] = {
    {"append", [](const StepRecord& step) { return step.append_s; }},
    {"write rows", [](const StepRecord& step) { return step.write_s; }},
    {kIndexPhase, [](const StepRecord& step) { return step.index_s; }},
    {"read plan", [](const StepRecord& step) { return step.counts.plan_s; }},
    {"score and accumulate", [](const StepRecord& step) { return step.counts.pass_s; }},
    {"merge", [](const StepRecord& step) { return step.counts.merge_s; }},
    {"rest",
     [](const StepRecord& step) {
       return step.total_s - step.append_s - step.write_s - step.index_s - step.counts.plan_s -
              step.counts.pass_s - step.counts.merge_s;
     }},
};

}  // namespace

double median_s(std::vector<double> seconds) {
  if (seconds.empty()) return 0;
  std::sort(seconds.begin(), seconds.end());
  return nearest_rank(seconds, 0.5);
}

LatencySummary summarise_latency(std::vector<double> seconds) {
  LatencySummary summary;
  if (seconds.empty()) return summary;
  std::sort(seconds.begin(), seconds.end());
  summary.steps = seconds.size();
  summary.min_us = seconds.front() * kMicro;
  summary.median_us = nearest_rank(seconds, 0.5) * kMicro;
  summary.mean_us = mean_of(seconds) * kMicro;
  summary.p90_us = nearest_rank(seconds, 0.90) * kMicro;
  summary.p99_us = nearest_rank(seconds, 0.99) * kMicro;
  summary.max_us = seconds.back() * kMicro;
  summary.stddev_us = stddev_of(seconds) * kMicro;
  // Step times are skewed, so that the interval of a normal distribution would be too narrow:
  // percentile bootstrap (Efron 1979), a fixed seed so that equal times give equal figures.
  std::minstd_rand random(1);
  std::uniform_int_distribution<std::size_t> pick(0, seconds.size() - 1);
  std::vector<double> deviations;
  std::vector<double> sample(seconds.size());
  for (std::size_t i = 0; i < kNumResamples; ++i) {
    for (double& value : sample) value = seconds[pick(random)];
    deviations.push_back(stddev_of(sample) * kMicro);
  }
  std::sort(deviations.begin(), deviations.end());
  summary.stddev_low_us = nearest_rank(deviations, (1 - kConfidence) / 2);
  summary.stddev_high_us = nearest_rank(deviations, (1 + kConfidence) / 2);
  return summary;
}

void report_latency(const std::vector<StepRecord>& steps, std::uint64_t warm_up_steps,
                    LatencyReport& report) {
  const auto warm =
      static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(warm_up_steps, steps.size()));
  const std::vector<StepRecord> measured(steps.begin() + warm, steps.end());
  std::vector<double> warm_up;
  for (auto step = steps.begin(); step != steps.begin() + warm; ++step) {
    warm_up.push_back(step->total_s);
  }
  std::vector<double> totals;
  for (const StepRecord& step : measured) totals.push_back(step.total_s);
  report.warm_up = summarise_latency(warm_up);
  report.steps = summarise_latency(totals);
  const double sum = totals.empty() ? 1 : mean_of(totals) * static_cast<double>(totals.size());
  const bool has_index = std::any_of(measured.begin(), measured.end(),
                                     [](const StepRecord& step) { return step.index_s > 0; });
  for (const Phase& phase : kPhases) {
    if (phase.name == kIndexPhase && !has_index) continue;
    std::vector<double> seconds;
    double phase_sum = 0;
    for (const StepRecord& step : measured) {
      seconds.push_back(phase.seconds(step));
      phase_sum += seconds.back();
    }
    report.phases.push_back({phase.name, median_s(seconds) * kMicro, phase_sum / sum});
  }
  std::vector<StepRecord> slowest = measured;
  std::sort(slowest.begin(), slowest.end(),
            [](const StepRecord& a, const StepRecord& b) { return a.total_s > b.total_s; });
  slowest.resize(std::min(slowest.size(), kNumSlowest));
  for (const StepRecord& step : slowest) {
    report.slowest.push_back({step.tokens, step.total_s * kMicro, cause_of(step)});
  }
}

}  // namespace kvarto
