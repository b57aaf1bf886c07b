// The cache's bookkeeping and its append path.
//
//   pool_cycle                 one block taken and given back, in a pool of 10 million blocks
//   bookkeeping/T              one sequence grown to T tokens, one at a time, without rows
//   fork/T                     a fork of a sequence of T tokens, and its end
//   append/layout:L/heads:H    one token of 4 layers written into a sequence of 16,384 tokens
//
// Budgets: bookkeeping late_over_early <= 1.1 and r_squared >= 0.99 at 10 million tokens;
// metadata_bytes_per_block <= 16; append share_of_decode <= 0.05 of a decode step of 32 query
// heads, measured in the same process.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>

#include "kvarto/block_pool.h"
#include "kvarto/kv_cache.h"
#include "kvarto/measure_append.h"

namespace {

using namespace kvarto;

Stream dense_stream(const char* name, CodecRole role, std::uint32_t heads, std::uint32_t dim) {
  Stream stream;
  stream.name = name;
  stream.fields = {
      {.name = name, .heads = heads, .width = dim, .role = role, .codec = Codec::kF16}};
  return stream;
}

ModelSpec dense_model(std::uint32_t heads, std::uint32_t dim, std::uint32_t layers) {
  ModelSpec model;
  model.num_layers = layers;
  LayerGroup group;
  group.architecture = "gqa";
  group.layers.resize(layers);
  std::iota(group.layers.begin(), group.layers.end(), 0u);
  group.streams = {dense_stream("k", CodecRole::kKey, heads, dim),
                   dense_stream("v", CodecRole::kValue, heads, dim)};
  model.groups = {group};
  return model;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void pool_cycle(benchmark::State& state) {
  constexpr std::uint64_t kNumBlocks = 10'000'000;
  BlockPool pool = BlockPool::create(kNumBlocks).value();
  for (auto _ : state) {
    const BlockId block = *pool.allocate();
    benchmark::DoNotOptimize(pool.release(block));
  }
  // With the block's entry in one table.
  state.counters["metadata_bytes_per_block"] =
      static_cast<double>(pool.metadata_bytes()) / kNumBlocks + sizeof(std::uint32_t);
}
BENCHMARK(pool_cycle);

void bookkeeping(benchmark::State& state) {
  // Rows of 2 x 1 f16 elements: 10 million tokens are 400 MB, of which none is touched.
  const ModelSpec model = dense_model(1, 1, 1);
  for (auto _ : state) {
    const auto timing = measure_bookkeeping(model, static_cast<std::uint64_t>(state.range(0)), 16);
    if (!timing) {
      state.SkipWithError(timing.error().message.c_str());
      return;
    }
    state.counters["early_ns"] = timing->early_ns_per_token;
    state.counters["late_ns"] = timing->late_ns_per_token;
    state.counters["late_over_early"] = timing->late_ns_per_token / timing->early_ns_per_token;
    state.counters["r_squared"] = timing->r_squared;
    state.counters["metadata_bytes_per_block"] = timing->metadata_bytes_per_block;
  }
}
BENCHMARK(bookkeeping)
    ->Arg(100'000)
    ->Arg(1'000'000)
    ->Arg(10'000'000)
    ->Unit(benchmark::kMillisecond);

void fork(benchmark::State& state) {
  const auto tokens = static_cast<std::uint64_t>(state.range(0));
  CacheOptions options;
  options.context = tokens;
  options.micro_batch = tokens;
  options.num_sequences = 2;
  KvCache cache = KvCache::create(dense_model(1, 16, 1), options).value();
  const SequenceId parent = *cache.create_sequence();
  if (*cache.append(parent, tokens) != Grant::kDone) return;
  for (auto _ : state) {
    const SequenceId child = **cache.fork(parent, tokens);
    benchmark::DoNotOptimize(cache.free_sequence(child));
  }
}
BENCHMARK(fork)->Arg(1'000)->Arg(16'384)->Arg(131'072)->Unit(benchmark::kMicrosecond);

void append(benchmark::State& state) {
  constexpr std::uint64_t kKvLen = 16'384;
  constexpr std::uint32_t kDim = 128;
  constexpr std::uint32_t kNumLayers = 4;
  const auto heads = static_cast<std::uint32_t>(state.range(1));
  AppendCase request;
  request.model = dense_model(heads, kDim, kNumLayers);
  request.options.layout = state.range(0) == 0 ? Layout::kGeneric : Layout::kHardware;
  request.options.context = kKvLen + 256;
  request.kv_len = kKvLen;
  AttentionBench decode;
  decode.q_heads = 32;
  decode.kv_heads = heads;
  decode.kv_len = kKvLen;
  decode.layout = request.options.layout;
  decode.seconds = 0.5;
  const auto decoded = measure_decode(decode);
  if (!decoded) {
    state.SkipWithError(decoded.error().message.c_str());
    return;
  }
  const double decode_s = decoded->time.median_us * 1e-6 * kNumLayers;
  for (auto _ : state) {
    const auto timing = measure_append(request);
    if (!timing) {
      state.SkipWithError(timing.error().message.c_str());
      return;
    }
    const double step_s = median(timing->step_s);
    state.counters["step_us"] = step_s * 1e6;
    state.counters["reserve_ns"] = median(timing->reserve_s) * 1e9;
    state.counters["gb_per_s"] = static_cast<double>(timing->bytes_per_step) / step_s / 1e9;
    state.counters["share_of_decode"] = step_s / decode_s;
    state.counters["huge_pages"] = timing->has_huge_pages ? 1 : 0;
  }
}
BENCHMARK(append)
    ->ArgNames({"hardware", "heads"})
    ->Args({0, 32})
    ->Args({1, 32})
    ->Args({0, 8})
    ->Args({1, 8})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
