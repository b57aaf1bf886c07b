// What observing costs: a decode step with a CacheRecorder against the same step without one.
//
//   observe/...   one layer of 32 query heads, 8 KV heads x 128, f16, 16,384 tokens
//
// Steps with and without take turns, so that drift of the machine meets them alike. `on_over_off`
// compares the medians, and `off_over_off` two halves of the steps without: what is noise. Off is a
// test of a null pointer in every call.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "kvarto/plan.h"
#include "kvarto/profile.h"

namespace {

using namespace kvarto;

constexpr std::uint64_t kKvLen = 16'384;
constexpr std::uint32_t kQueryHeads = 32;
constexpr std::uint32_t kHeadDim = 128;
constexpr int kRounds = 150;

double median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

struct Setting {
  KvCache cache;
  AttentionRunner runner;
  SequenceId sequence{};
  StreamId k{};
  StreamId v{};
};

Result<Setting> make_setting(std::uint32_t num_threads) {
  WhatIfDefaults defaults;
  defaults.q_heads = kQueryHeads;
  defaults.kv_heads = 8;
  defaults.head_dim = kHeadDim;
  KVARTO_TRY(ModelSpec model, geometry_model("gqa", defaults, 1));
  KVARTO_TRY(model, with_types(std::move(model), {"f16", "f16", ""}));
  CacheOptions options;
  options.context = kKvLen;
  options.micro_batch = kKvLen;
  options.is_populated = true;
  KVARTO_TRY(KvCache cache, KvCache::create(std::move(model), options));
  KVARTO_TRY(AttentionRunner runner, AttentionRunner::create({num_threads, false}));
  Setting setting{std::move(cache), std::move(runner)};
  setting.sequence = *setting.cache.create_sequence();
  KVARTO_CHECK_OK(setting.cache.append(setting.sequence, kKvLen));
  KVARTO_TRY(setting.k, setting.cache.find_stream(0, "k"));
  KVARTO_TRY(setting.v, setting.cache.find_stream(0, "v"));
  return setting;
}

void observing(benchmark::State& state) {
  auto setting = make_setting(static_cast<std::uint32_t>(state.range(0)));
  if (!setting.has_value()) return state.SkipWithError(setting.error().message.c_str());
  const std::vector<SequenceId> sequences = {setting->sequence};
  const std::vector<float> q(kQueryHeads * kHeadDim, 0.5f);
  std::vector<float> out(kQueryHeads * kHeadDim);
  CacheRecorder recorder(setting->cache);
  std::vector<double> seconds[3];  // off, on, off again
  for (auto _ : state) {
    for (int i = 0; i < 3 * kRounds; ++i) {
      const bool is_on = i % 3 == 1;
      setting->runner.set_observer(is_on ? &recorder : nullptr);
      const auto begin = std::chrono::steady_clock::now();
      const auto view = setting->cache.view(setting->k, setting->v, sequences);
      DecodeCall call;
      call.view = view->cache();
      call.num_q_heads = kQueryHeads;
      call.q = q;
      call.out = out;
      const auto ran = setting->runner.decode(call);
      if (is_on) recorder.next_step();
      const auto end = std::chrono::steady_clock::now();
      if (!ran.has_value()) return state.SkipWithError(ran.error().message.c_str());
      seconds[i % 3].push_back(std::chrono::duration<double>(end - begin).count());
    }
  }
  state.counters["off_us"] = median(seconds[0]) * 1e6;
  state.counters["on_over_off"] = median(seconds[1]) / median(seconds[0]);
  state.counters["off_over_off"] = median(seconds[2]) / median(seconds[0]);
  state.counters["goal"] = 1.03;
}

BENCHMARK(observing)
    ->Name("observe/gqa f16 16384")
    ->Arg(1)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
