#include <fmt/format.h>

#include "base/thread_pool.h"
#include "cache/storage.h"
#include "kernels/dispatch.h"
#include "profile/repetition.h"

namespace kvarto {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = kKiB * kKiB;
// From the first-level cache to memory beyond every cache.
constexpr std::uint64_t kWorkingSets[] = {32 * kKiB,  256 * kKiB, 1 * kMiB,   2 * kMiB,
                                          4 * kMiB,   16 * kMiB,  32 * kMiB,  64 * kMiB,
                                          128 * kMiB, 256 * kMiB, 512 * kMiB, 1024 * kMiB};
constexpr std::uint64_t kStreamStep = 4096;
constexpr std::uint32_t kMaxThreads = 1024;

Result<BandwidthPoint> measure_point(std::uint64_t bytes, ThreadPool& pool, bool wants_huge_pages,
                                     const KernelTable& kernels, double seconds) {
  KVARTO_TRY(Storage storage, Storage::map(bytes, wants_huge_pages));
  KVARTO_CHECK_OK(storage.populate());
  const std::uint64_t share = bytes / pool.num_threads() / kStreamStep * kStreamStep;
  TimedWork stream{
      .run =
          [&] {
            pool.run([&](std::size_t thread) {
              keep_result(kernels.read_stream(storage.begin() + share * thread, share));
            });
          },
      .num_threads = pool.num_threads()};
  time_in_turn({&stream}, seconds);
  BandwidthPoint point;
  point.working_set_bytes = bytes;
  point.num_threads = static_cast<std::uint32_t>(pool.num_threads());
  point.wants_huge_pages = wants_huge_pages;
  point.has_huge_pages = residency_of(storage).huge_page_bytes * 2 > storage.size_bytes();
  point.gb_per_s = static_cast<double>(share * pool.num_threads()) / stream.median_s() / 1e9;
  return point;
}

PeakPoint measure_peak(const PeakLoop& loop, double seconds) {
  constexpr std::size_t kRounds = 20000;
  TimedWork work{.run = [&] { keep_result(loop.run(kRounds)); }};
  time_in_turn({&work}, seconds);
  return {loop.name, loop.isa,
          static_cast<double>(loop.operations) * kRounds / work.median_s() / 1e9};
}

Status check(const MachineBench& bench, std::span<const std::uint64_t> sets,
             std::span<const std::uint32_t> threads) {
  for (const std::uint32_t count : threads) {
    if (count == 0 || count > kMaxThreads) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("threads: found {}, expected 1 to {}", count, kMaxThreads));
    }
    for (const std::uint64_t bytes : sets) {
      if (bytes / count < kStreamStep) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("working set: found {} bytes, expected at least {} for {} threads",
                                bytes, kStreamStep * count, count));
      }
    }
  }
  if (!(bench.seconds_per_point > 0)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("seconds per point: found {}, expected more than 0", bench.seconds_per_point));
  }
  return {};
}

}  // namespace

Result<MachineReport> measure_machine(const MachineBench& bench) {
  KVARTO_TRY(const KernelTable* kernels, active_kernels());
  MachineReport report;
  report.isa = kernels->name;
  report.num_cores = num_usable_cores();
  std::vector<std::uint64_t> sets = bench.working_sets_bytes;
  if (sets.empty()) sets.assign(std::begin(kWorkingSets), std::end(kWorkingSets));
  std::vector<std::uint32_t> threads = bench.threads;
  if (threads.empty()) {
    threads = {1};
    if (report.num_cores > 1) threads.push_back(static_cast<std::uint32_t>(report.num_cores));
  }
  KVARTO_CHECK_OK(check(bench, sets, threads));
  for (const std::uint32_t count : threads) {
    ThreadPool pool(count, count > 1 ? ThreadPool::Pinning::kCores : ThreadPool::Pinning::kNone);
    for (const std::uint64_t bytes : sets) {
      for (const bool wants_huge_pages : {true, false}) {
        KVARTO_TRY(const BandwidthPoint point,
                   measure_point(bytes, pool, wants_huge_pages, *kernels, bench.seconds_per_point));
        report.bandwidth.push_back(point);
      }
    }
  }
  const PeakLoop f32{"f32 fma", kernels->name, kernels->fma_loop, kernels->fma_loop_flop};
  report.peaks.push_back(measure_peak(f32, bench.seconds_per_point));
  for (const PeakLoop& loop : native_peak_loops()) {
    report.peaks.push_back(measure_peak(loop, bench.seconds_per_point));
  }
  return report;
}

}  // namespace kvarto
