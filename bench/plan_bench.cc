// The planner as a library call.
//
//   plan_on/E/layers_differ:0    the 126 equal layers of Llama-3.1-405B: one layer group
//   plan_on/E/layers_differ:1    126 layers of 126 window sizes: one group each, the worst case
//   what_if_table                           a table of eight architectures
//   largest_context_search                   a binary search over plans
//
// `plans_10k_s` is the time of 10,000 plans; its budget is 1 s for the first case.

#include <benchmark/benchmark.h>

#include "kvarto/plan.h"

namespace {

using namespace kvarto;

// Heads of Llama-3.1-405B: 126 layers, 128 query and 8 KV heads of 128.
ModelSpec llama_405b() { return geometry_model("gqa:8", {.q_heads = 128}, 126).value(); }

ModelSpec with_different_windows(const ModelSpec& model) {
  ModelSpec made = model;
  made.groups.clear();
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
    LayerGroup group = model.groups.front();
    group.layers = {layer};
    for (Stream& stream : group.streams) {
      stream.lifetime = {Lifetime::Kind::kWindow, 128 + layer};
    }
    made.groups.push_back(group);
  }
  return made;
}

void report_budget(benchmark::State& state) {
  state.counters["plans_10k_s"] = benchmark::Counter(
      1e-4, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void plan_on(benchmark::State& state, const char* engine) {
  const bool has_different_layers = state.range(0) != 0;
  const ModelSpec model =
      has_different_layers ? with_different_windows(llama_405b()) : llama_405b();
  const std::vector<std::string> engines = {engine};
  PlanRequest request{.context = 1, .num_sequences = 8, .tensor_parallel = 8};
  for (auto _ : state) {
    request.context = request.context % 131'072 + 1;
    benchmark::DoNotOptimize(plan(model, request, engines));
  }
  report_budget(state);
}
BENCHMARK_CAPTURE(plan_on, ideal, "ideal")->ArgName("layers_differ")->Arg(0)->Arg(1);
BENCHMARK_CAPTURE(plan_on, kvarto, "kvarto")->ArgName("layers_differ")->Arg(0)->Arg(1);

void what_if_table(benchmark::State& state) {
  const ModelSpec model = llama_405b();
  const std::vector<std::string> words = {"mha", "gqa:8", "mqa",           "mla:512+64",
                                          "dsa", "csa",   "multilevel:16", "dynamic:0.25"};
  for (auto _ : state) {
    benchmark::DoNotOptimize(what_if(model, {.context = 131'072}, words, {}));
  }
}
BENCHMARK(what_if_table);

void largest_context_search(benchmark::State& state) {
  const ModelSpec model = llama_405b();
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        largest_context(model, {.num_sequences = 8}, "kvarto", std::uint64_t{1} << 36, 1u << 20));
  }
}
BENCHMARK(largest_context_search);

}  // namespace

BENCHMARK_MAIN();
