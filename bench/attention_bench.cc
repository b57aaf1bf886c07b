// Attention against the read stream and the multiply-add loop of the same process.
//
//   memory/...    caches of at least 512 MiB: what a long context costs
//   cache/...     caches of at most 32 MiB, which stay in the last-level cache between runs
//   pair/...      two measurements side by side: paged and contiguous, layouts, forks, ragged
//   codes/...     integer codes against f16 and against the read stream
//   latent/...    absorbed decode of MLA against the multiply-add loop, 65,536 tokens
//   batches prefill/...   2,048 tokens against the multiply-add loop
//   ..._in_f16_...   arithmetic in f16 where it is asked for, against its own multiply-add loop
//
// `reached` is the ratio of the case's name, `goal` what it should be. One iteration is one
// measurement of about a second, medians over its quiet runs.

#include <benchmark/benchmark.h>

#include <string>

#include "kvarto/measure.h"

namespace {

using namespace kvarto;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

AttentionBench shape(std::uint32_t q_heads, std::uint32_t kv_heads, Codec codec,
                     std::uint64_t bytes) {
  AttentionBench bench;
  bench.q_heads = q_heads;
  bench.kv_heads = kv_heads;
  bench.k_codec = codec;
  bench.v_codec = codec;
  bench.kv_len = bytes / (2ull * kv_heads * codec_bytes(codec, 128).total());
  return bench;
}

AttentionBench with(AttentionBench bench, Layout layout) {
  bench.layout = layout;
  return bench;
}
AttentionBench with_threads(AttentionBench bench, std::uint32_t threads) {
  bench.num_threads = threads;
  return bench;
}
AttentionBench in_half(AttentionBench bench) {
  bench.arith = Arith::kF16;
  return bench;
}
AttentionBench contiguous(AttentionBench bench) {
  bench.block_size = 0;
  return bench;
}

// Latent rows of DeepSeek-V3 under so many query heads.
AttentionBench latent(std::uint32_t q_heads, Codec codec) {
  AttentionBench bench;
  bench.q_heads = q_heads;
  bench.kv_heads = 1;
  bench.v_dim = 512;
  bench.qk_dim = 512 + 64;
  bench.k_codec = codec;
  bench.v_codec = codec;
  bench.kv_len = 65536;
  bench.latent.emplace();
  bench.latent->tail_codec = codec == Codec::kFp8Scaled128 ? Codec::kBF16 : codec;
  return bench;
}

void decode_of_stream(benchmark::State& state, AttentionBench bench, double goal) {
  for (auto _ : state) {
    const auto report = measure_decode(bench);
    if (!report.has_value()) return state.SkipWithError(report.error().message.c_str());
    state.counters["reached"] = report->bandwidth_fraction();
    state.counters["GB/s"] = report->gb_per_s;
    state.counters["of_peak"] = report->flop_fraction();
    state.SetIterationTime(report->time.median_us * 1e-6);
  }
  state.counters["goal"] = goal;
}

using Measure = Result<BenchReport> (*)(const AttentionBench&);

void of_peak(benchmark::State& state, AttentionBench bench, double goal, Measure measure) {
  for (auto _ : state) {
    const auto report = measure(bench);
    if (!report.has_value()) return state.SkipWithError(report.error().message.c_str());
    state.counters["reached"] = report->flop_fraction();
    state.counters["GFLOP/s"] = report->gflop_per_s;
    state.SetIterationTime(report->time.median_us * 1e-6);
  }
  state.counters["goal"] = goal;
}

void prefill_of_peak(benchmark::State& state, AttentionBench bench, double goal) {
  bench.q_len = bench.kv_len;
  of_peak(state, bench, goal, measure_prefill);
}

void decode_of_peak(benchmark::State& state, AttentionBench bench, double goal) {
  of_peak(state, bench, goal, measure_decode);
}

// Time of `bench` over time of `other`.
void decode_ratio(benchmark::State& state, AttentionBench bench, AttentionBench other,
                  double goal) {
  for (auto _ : state) {
    const auto one = measure_decode(bench);
    const auto two = measure_decode(other);
    if (!one.has_value() || !two.has_value()) {
      return state.SkipWithError("one of the two cannot be measured");
    }
    // The machine may have slowed between the two: each is taken against its own stream.
    const double drift = two->machine_gb_per_s / one->machine_gb_per_s;
    state.counters["reached"] = one->time.median_us / two->time.median_us / drift;
    state.SetIterationTime(one->time.median_us * 1e-6);
  }
  state.counters["goal"] = goal;
}

// The same over caches of different sizes, whose streams differ: `other` before and after instead.
void decode_time_ratio(benchmark::State& state, AttentionBench bench, AttentionBench other,
                       double goal) {
  for (auto _ : state) {
    const auto before = measure_decode(other);
    const auto one = measure_decode(bench);
    const auto after = measure_decode(other);
    if (!before.has_value() || !one.has_value() || !after.has_value()) {
      return state.SkipWithError("one of the two cannot be measured");
    }
    state.counters["reached"] =
        2 * one->time.median_us / (before->time.median_us + after->time.median_us);
    state.counters["of_stream"] = one->bandwidth_fraction();
    state.counters["of_peak"] = one->flop_fraction();
    state.SetIterationTime(one->time.median_us * 1e-6);
  }
  state.counters["goal"] = goal;
}

void add(const std::string& name, const AttentionBench& bench, double goal) {
  benchmark::RegisterBenchmark(name.c_str(), decode_of_stream, bench, goal)
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

using Measurement = void (*)(benchmark::State&, AttentionBench, double);
void add_of_peak(const std::string& name, Measurement measurement, const AttentionBench& bench,
                 double goal) {
  benchmark::RegisterBenchmark(name.c_str(), measurement, bench, goal)
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

void add_pair(const std::string& name, const AttentionBench& bench, const AttentionBench& other,
              double goal) {
  benchmark::RegisterBenchmark(name.c_str(), decode_ratio, bench, other, goal)
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

AttentionBench with_arith(AttentionBench bench, Arith arith, std::uint32_t query_bits = 16) {
  bench.arith = arith;
  bench.query_bits = query_bits;
  return bench;
}

// Share of the peak of two threads over that of one: what the loop itself gains, attention should.
void thread_share(benchmark::State& state, AttentionBench bench, double goal) {
  for (auto _ : state) {
    const auto one = measure_decode(bench);
    const auto two = measure_decode(with_threads(bench, 2));
    if (!one.has_value() || !two.has_value()) {
      return state.SkipWithError("one of the two cannot be measured");
    }
    state.counters["reached"] = two->flop_fraction() / one->flop_fraction();
    state.SetIterationTime(two->time.median_us * 1e-6);
  }
  state.counters["goal"] = goal;
}

void add_latent() {
  for (const Codec codec : {Codec::kF16, Codec::kBF16, Codec::kInt8, Codec::kFp8Scaled128}) {
    const std::string name = "latent/" + std::string(codec_info(codec).name);
    add_of_peak(name + "_128_heads_of_fma_loop", decode_of_peak, latent(128, codec), 0.68);
    add_of_peak(name + "_16_heads_of_fma_loop", decode_of_peak, latent(16, codec), 0.48);
  }
  const AttentionBench many = in_half(latent(128, Codec::kF16));
  add_of_peak("latent/128_heads_in_f16_of_f16_fma_loop", decode_of_peak, many, 0.68);
  add_of_peak("latent/16_heads_in_f16_of_f16_fma_loop", decode_of_peak,
              in_half(latent(16, Codec::kF16)), 0.48);
  benchmark::RegisterBenchmark("latent/two_threads_over_one", thread_share,
                               latent(128, Codec::kF16), 0.90)
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

// Integer codes: against the time of f16 arithmetic over as many f16 tokens, and the read stream.
void add_codes() {
  constexpr std::uint64_t kLongContext = 131072;
  constexpr std::uint64_t kManyHeadsContext = 65536;
  struct Goal {
    Codec codec;
    double with_16_bits;
    double with_8_bits;
    double of_stream;
  };
  constexpr Goal kGoals[] = {{Codec::kInt8, 0.66, 0.58, 0.88},
                             {Codec::kQ8_0, 0.80, 0.80, 0.75},
                             {Codec::kInt4, 0.52, 0.52, 0.75},
                             {Codec::kQ4_0, 0.65, 0.65, 0.65}};
  AttentionBench wide = shape(64, 8, Codec::kF16, 0);
  wide.kv_len = kLongContext;
  wide.arith = Arith::kF16;
  for (const Goal& goal : kGoals) {
    AttentionBench codes = shape(64, 8, goal.codec, 0);
    codes.kv_len = kLongContext;
    const std::string name = "codes/gqa64_8_" + std::string(codec_info(goal.codec).name);
    const auto add_time = [&](const std::string& full_name, std::uint32_t query_bits, double of) {
      benchmark::RegisterBenchmark(full_name.c_str(), decode_time_ratio,
                                   with_arith(codes, Arith::kInt8, query_bits), wide, of)
          ->Iterations(1)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    };
    add_time(name + "_over_f16", 16, goal.with_16_bits);
    add_time(name + "_8_bit_queries_over_f16", 8, goal.with_8_bits);
    AttentionBench mha = shape(32, 32, goal.codec, 0);
    mha.kv_len = kManyHeadsContext;
    add("codes/mha32_" + std::string(codec_info(goal.codec).name) + "_of_stream",
        with_arith(mha, Arith::kInt8), goal.of_stream);
  }
}

void register_all() {
  const AttentionBench mha = shape(32, 32, Codec::kF16, 512 * kMiB);
  const AttentionBench small_mha = shape(32, 32, Codec::kF16, 32 * kMiB);
  add("memory/mha32_f16_of_stream", mha, 0.92);
  add("memory/mha32_bf16_of_stream", shape(32, 32, Codec::kBF16, 512 * kMiB), 0.92);
  add("memory/gqa32_8_f16_of_stream", shape(32, 8, Codec::kF16, 512 * kMiB), 0.80);
  add("memory/gqa64_8_f16_of_stream", shape(64, 8, Codec::kF16, 512 * kMiB), 0.65);
  add("memory/mha32_f16_generic_of_stream", with(mha, Layout::kGeneric), 0.65);
  add("memory/mha32_f16_2_threads_of_stream", with_threads(mha, 2), 0.93);
  add("cache/mha32_f16_of_stream", small_mha, 0.92);
  add("cache/gqa32_8_f16_of_stream", shape(32, 8, Codec::kF16, 16 * kMiB), 0.70);
  add("cache/gqa64_8_f16_of_stream", shape(64, 8, Codec::kF16, 16 * kMiB), 0.45);
  add_pair("pair/hardware_over_generic", small_mha, with(small_mha, Layout::kGeneric), 1.03);
  add_pair("pair/paged_over_contiguous", mha, contiguous(mha), 1.03);
  AttentionBench one = shape(32, 32, Codec::kF16, 256 * kMiB);
  AttentionBench forks = one;
  forks.batch = 8;
  forks.batch_kind = BenchBatch::kForked;
  add_pair("pair/eight_forks_over_one", forks, one, 1.40);
  AttentionBench ragged = shape(32, 8, Codec::kF16, 32 * kMiB);
  ragged.kv_len = 8192;
  ragged.batch = 64;
  ragged.batch_kind = BenchBatch::kRagged;
  AttentionBench joined = ragged;
  joined.batch = 1;
  joined.batch_kind = BenchBatch::kEqual;
  joined.kv_len = 64ull * (1 + 8192) / 2;
  add_pair("pair/ragged_over_one", ragged, joined, 1.15);
  add("memory/gqa32_8_in_f16_of_stream", in_half(shape(32, 8, Codec::kF16, 512 * kMiB)), 0.82);
  add("memory/gqa64_8_in_f16_of_stream", in_half(shape(64, 8, Codec::kF16, 512 * kMiB)), 0.78);
  add("cache/gqa32_8_in_f16_of_stream", in_half(shape(32, 8, Codec::kF16, 16 * kMiB)), 0.80);
  add("cache/gqa64_8_in_f16_of_stream", in_half(shape(64, 8, Codec::kF16, 16 * kMiB)), 0.65);
  add_of_peak("cache/mqa32_1_in_f16_of_f16_fma_loop", decode_of_peak,
              in_half(shape(32, 1, Codec::kF16, 2 * kMiB)), 0.58);
  add_codes();
  add_latent();
  AttentionBench prefill = shape(32, 8, Codec::kF16, 8 * kMiB);  // 2,048 tokens
  add_of_peak("prefill/gqa32_8_of_fma_loop", prefill_of_peak, prefill, 0.60);
  add_of_peak("prefill/gqa32_8_in_f16_of_f16_fma_loop", prefill_of_peak, in_half(prefill), 0.55);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  register_all();
  benchmark::RunSpecifiedBenchmarks();
}
