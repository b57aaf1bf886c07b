// Attention over rows that an indexer picks, with DeepSeek-V3.2's numbers: 128 heads, rows of 512 +
// 64 elements, 64 index heads of 128 elements, top-2048.
//
//   sparse/dense_over_dsa_...     time of dense attention over that of indexer and attention
//   sparse/..._over_plan_...      time over the longer of the plan's bytes at the read stream and
//   its
//                                 FLOP at the multiply-add loop
//
// `reached` is the ratio of the case's name, `goal` what it should be: the first at least, the
// second at most.

#include <benchmark/benchmark.h>

#include <string>

#include "kvarto/measure_sparse.h"
#include "kvarto/plan.h"

namespace {

using namespace kvarto;

Result<SparseReport> measure(std::uint64_t kv_len, Arith arith) {
  SparseBench bench;
  KVARTO_TRY(bench.model, geometry_model("dsa", {}, 1));
  KVARTO_TRY(bench.model, with_types(bench.model, {.key = "f16", .value = "f16", .index = ""}));
  bench.kv_len = kv_len;
  bench.arith = arith;
  bench.seconds = 2;
  return measure_sparse(bench);
}

enum class Ratio : unsigned char { kOfDense, kOfPlan };

void run(benchmark::State& state, std::uint64_t kv_len, Arith arith, Ratio ratio, double goal) {
  for (auto _ : state) {
    const auto report = measure(kv_len, arith);
    if (!report.has_value()) return state.SkipWithError(report.error().message.c_str());
    const double time_us = report->time.median_us;
    state.counters["reached"] = ratio == Ratio::kOfDense ? report->dense_time.median_us / time_us
                                                         : time_us / report->floor_us();
    state.counters["index_ms"] = report->index_time.median_us * 1e-3;
    state.counters["attention_ms"] = report->attention_time.median_us * 1e-3;
    state.SetIterationTime(time_us * 1e-6);
  }
  state.counters["goal"] = goal;
}

void add(const std::string& name, std::uint64_t kv_len, Arith arith, Ratio ratio, double goal) {
  benchmark::RegisterBenchmark(name.c_str(), run, kv_len, arith, ratio, goal)
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  add("sparse/dense_over_dsa_65536", 65536, Arith::kF32, Ratio::kOfDense, 8);
  add("sparse/dense_over_dsa_65536_in_f16", 65536, Arith::kF16, Ratio::kOfDense, 8);
  for (const std::uint64_t kv_len : {4096, 16384, 65536}) {
    add("sparse/dsa_over_plan_" + std::to_string(kv_len), kv_len, Arith::kF32, Ratio::kOfPlan, 1.4);
  }
  benchmark::RunSpecifiedBenchmarks();
}
