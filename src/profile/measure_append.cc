#include "kvarto/measure_append.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "base/checked.h"
#include "base/float16.h"
#include "profile/streamed_bytes.h"

namespace kvarto {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One stream of one layer, and as many rows for it as one step bears at most.
struct RowWriter {
  StreamId id{};
  const Stream* stream = nullptr;
  std::uint64_t elements = 0;  // of one row
  std::vector<std::byte> rows;
};

std::uint64_t born_rows(const Stream& stream, std::uint64_t tokens) {
  if (stream.lifetime.kind == Lifetime::Kind::kConstant) return tokens == 0 ? 0 : 1;
  if (tokens <= stream.birth_delay_tokens) return 0;
  return (tokens - stream.birth_delay_tokens) / stream.tokens_per_row;
}

// Small numbers, about half of them negative: no NaN, no infinity, nothing subnormal.
std::vector<std::byte> random_elements(std::uint64_t count, Codec codec, std::minstd_rand& random) {
  const std::uint64_t element_bytes = codec_info(codec).element_bits / 8;
  std::vector<std::byte> bytes(count * element_bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool is_upper = i % element_bytes == element_bytes - 1;
    // 0x3C and 0xBC: magnitudes of 0.0078 to 2 in all three formats.
    const unsigned sign = static_cast<unsigned>(random() >> 8 & 1) << 7;
    bytes[i] = static_cast<std::byte>(is_upper ? 0x3C | sign : random() >> 8 & 0xFF);
  }
  return bytes;
}

Result<std::vector<RowWriter>> make_writers(const KvCache& cache, const AppendCase& request) {
  std::vector<RowWriter> writers;
  std::minstd_rand random(1);
  for (const LayerGroup& group : cache.model().groups) {
    for (const std::uint32_t layer : group.layers) {
      for (const Stream& stream : group.streams) {
        if (stream.owner_layer || stream.lifetime.kind == Lifetime::Kind::kStep) continue;
        RowWriter writer{.stream = &stream};
        for (const Field& field : stream.fields) {
          const bool is_divided = stream.shard == Shard::kHead;
          const std::uint64_t heads =
              is_divided ? heads_on_rank(field.heads, cache.options().tensor_parallel)
                         : field.heads;
          writer.elements += heads * field.width;
        }
        KVARTO_TRY(writer.id, cache.find_stream(layer, stream.name));
        const std::uint64_t max_rows = ceil_div(request.tokens_per_step, stream.tokens_per_row);
        writer.rows = random_elements(max_rows * writer.elements, request.source, random);
        writers.push_back(std::move(writer));
      }
    }
  }
  return writers;
}

// The rows that a sequence bears between two lengths.
struct Growth {
  SequenceId sequence{};
  std::uint64_t from_tokens = 0;
  std::uint64_t to_tokens = 0;
  [[nodiscard]] std::uint64_t first_row(const Stream& stream) const {
    return stream.lifetime.kind == Lifetime::Kind::kConstant ? 0 : born_rows(stream, from_tokens);
  }
  [[nodiscard]] std::uint64_t num_rows(const Stream& stream) const {
    return born_rows(stream, to_tokens) - first_row(stream);
  }
};

std::span<const std::byte> rows_of(const RowWriter& writer, std::uint64_t count, Codec source) {
  return std::span(writer.rows)
      .first(count * writer.elements * codec_info(source).element_bits / 8);
}

Status write_rows(KvCache& cache, const Growth& growth, const std::vector<RowWriter>& writers,
                  Codec source) {
  for (const RowWriter& writer : writers) {
    const std::uint64_t count = growth.num_rows(*writer.stream);
    KVARTO_CHECK_OK(cache.write(growth.sequence, writer.id, growth.first_row(*writer.stream),
                                {source, rows_of(writer, count, source)}));
  }
  return {};
}

std::uint64_t written_bytes(const Growth& growth, const std::vector<RowWriter>& writers) {
  std::uint64_t bytes = 0;
  for (const RowWriter& writer : writers) {
    bytes += growth.num_rows(*writer.stream) * row_bytes(*writer.stream).total();
  }
  return bytes;
}

float widened(std::span<const std::byte> elements, std::size_t index, Codec codec) {
  if (codec == Codec::kF32) {
    float value = 0;
    std::memcpy(&value, elements.data() + index * sizeof value, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, elements.data() + index * sizeof bits, sizeof bits);
  return codec == Codec::kF16 ? float_from_f16(bits) : float_from_bf16(bits);
}

Result<double> read_back_error(const KvCache& cache, const Growth& growth,
                               const std::vector<RowWriter>& writers, Codec source) {
  double difference = 0;
  double reference = 0;
  for (const RowWriter& writer : writers) {
    const std::uint64_t count = growth.num_rows(*writer.stream);
    std::vector<float> read(count * writer.elements);
    KVARTO_CHECK_OK(cache.read(growth.sequence, writer.id, growth.first_row(*writer.stream), read));
    for (std::size_t i = 0; i < read.size(); ++i) {
      const double given = widened(writer.rows, i, source);
      difference = std::max(difference, std::abs(read[i] - given));
      reference = std::max(reference, std::abs(given));
    }
  }
  return reference > 0 ? difference / reference : 0;
}

Status grow(KvCache& cache, SequenceId sequence, std::uint64_t num_tokens) {
  KVARTO_TRY(const Grant grant, cache.append(sequence, num_tokens));
  if (grant == Grant::kDone) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("measure append: no free block for {} tokens, expected enough blocks for "
                          "all sequences",
                          num_tokens));
}

Result<std::vector<SequenceId>> grown_sequences(KvCache& cache, std::uint64_t kv_len) {
  std::vector<SequenceId> sequences;
  for (std::uint64_t i = 0; i < cache.options().num_sequences; ++i) {
    sequences.push_back(*cache.create_sequence());
    for (std::uint64_t done = 0; done < kv_len;) {
      const std::uint64_t count = std::min(kv_len - done, cache.options().micro_batch);
      KVARTO_CHECK_OK(grow(cache, sequences.back(), count));
      done += count;
    }
  }
  return sequences;
}

Status check(const AppendCase& request) {
  const auto runs = checked_add(request.warm_up_runs, request.runs);
  const auto tokens = runs ? checked_mul(*runs, request.tokens_per_step) : std::nullopt;
  const auto length = tokens ? checked_add(*tokens, request.kv_len) : std::nullopt;
  if (request.runs > 0 && request.tokens_per_step > 0 && length &&
      *length <= request.options.context) {
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("measure append: {} tokens, then {} and {} runs of {}, expected at least "
                          "1 run of 1 token and at most {} tokens in all",
                          request.kv_len, request.warm_up_runs, request.runs,
                          request.tokens_per_step, request.options.context));
}

}  // namespace

Result<AppendTiming> measure_append(const AppendCase& request) {
  KVARTO_CHECK_OK(check(request));
  CacheOptions options = request.options;
  options.is_populated = true;  // page faults are not what a long-running cache pays
  options.micro_batch = std::max(options.micro_batch, request.tokens_per_step);
  KVARTO_TRY(KvCache cache, KvCache::create(request.model, options));
  KVARTO_TRY(const std::vector<RowWriter> writers, make_writers(cache, request));
  KVARTO_TRY(const std::vector<SequenceId> sequences, grown_sequences(cache, request.kv_len));
  AppendTiming timing;
  timing.isa = cache.isa();
  for (const TrackUsage& usage : cache.usage()) {
    timing.has_huge_pages = timing.has_huge_pages || usage.huge_page_bytes > 0;
  }
  std::uint64_t total_bytes = 0;
  Growth growth{.to_tokens = request.kv_len};
  for (std::uint64_t run = 0; run < request.warm_up_runs + request.runs; ++run) {
    growth.from_tokens = growth.to_tokens;
    growth.to_tokens += request.tokens_per_step;
    const Clock::time_point begin = Clock::now();
    for (const SequenceId sequence : sequences) {
      KVARTO_CHECK_OK(grow(cache, sequence, request.tokens_per_step));
    }
    const double reserve_s = seconds_since(begin);
    for (const SequenceId sequence : sequences) {
      growth.sequence = sequence;
      KVARTO_CHECK_OK(write_rows(cache, growth, writers, request.source));
    }
    const double step_s = seconds_since(begin);
    if (run < request.warm_up_runs) continue;
    timing.step_s.push_back(step_s);
    timing.reserve_s.push_back(reserve_s);
    total_bytes += written_bytes(growth, writers) * sequences.size();
  }
  timing.bytes_per_step = total_bytes / request.runs;
  growth.sequence = sequences.front();
  KVARTO_TRY(timing.max_rel_error, read_back_error(cache, growth, writers, request.source));
  return timing;
}

namespace {

Stream dense_stream(const AttentionBench& bench, CodecRole role) {
  const bool is_key = role == CodecRole::kKey;
  Stream stream;
  stream.name = is_key ? "k" : "v";
  stream.fields = {{.name = stream.name,
                    .heads = bench.kv_heads,
                    .width = is_key ? bench.qk_dim : bench.v_dim,
                    .role = role,
                    .codec = is_key ? bench.k_codec : bench.v_codec}};
  if (bench.window != 0) stream.lifetime = {Lifetime::Kind::kWindow, bench.window};
  return stream;
}

// As many steps as fit the bench's time, guessed from the bytes at a slow 1 GB/s.
std::uint64_t affordable_runs(const AttentionBench& bench) {
  constexpr double kBytesPerSecond = 1e9;
  constexpr double kMinRuns = 20;
  constexpr double kMaxRuns = 5000;
  const std::uint64_t head_bytes = codec_bytes(bench.k_codec, bench.qk_dim).total() +
                                   codec_bytes(bench.v_codec, bench.v_dim).total();
  const double row_bytes = static_cast<double>(bench.kv_heads) * static_cast<double>(head_bytes);
  const double step_s =
      row_bytes * static_cast<double>(bench.q_len) * bench.batch / kBytesPerSecond;
  return static_cast<std::uint64_t>(
      std::clamp(bench.seconds / std::max(step_s, 1e-6), kMinRuns, kMaxRuns));
}

}  // namespace

Result<BenchReport> measure_append(const AttentionBench& bench) {
  if (bench.baseline != BenchBaseline::kNone || bench.num_threads != 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("append: {} threads, expected 1 and no baseline", bench.num_threads));
  }
  AppendCase request;
  request.model.num_layers = 1;
  request.model.groups = {
      {.architecture = "dense",
       .layers = {0},
       .streams = {dense_stream(bench, CodecRole::kKey), dense_stream(bench, CodecRole::kValue)}}};
  request.kv_len = bench.kv_len;
  request.tokens_per_step = bench.q_len;
  request.runs = affordable_runs(bench);
  const auto grown = checked_mul(request.runs + request.warm_up_runs, bench.q_len);
  const auto context = grown ? checked_add(*grown, bench.kv_len) : std::nullopt;
  request.options.context = context.value_or(~std::uint64_t{0});
  request.options.num_sequences = bench.batch;
  request.options.layout = bench.layout;
  request.options.is_contiguous = bench.block_size == 0;
  if (bench.block_size != 0) request.options.block_size = bench.block_size;
  KVARTO_TRY(const AppendTiming timing, measure_append(request));
  BenchReport report;
  report.kernel = "append";
  report.isa = timing.isa;
  report.layout = layout_name(bench.layout);
  report.arith = "none";
  report.unique_kv_bytes = timing.bytes_per_step;
  report.time = summarise(timing.step_s);
  report.gb_per_s = static_cast<double>(timing.bytes_per_step) / report.time.median_us / 1e3;
  report.max_rel_error = timing.max_rel_error;
  report.has_huge_pages = timing.has_huge_pages;
  // The rows of all steps lie side by side, and each step's are new: they are the working set.
  report.stream_bytes = std::max(kMinStreamedBytes, timing.bytes_per_step * request.runs);
  KVARTO_TRY(const MachineReport machine,
             measure_machine({.working_sets_bytes = {report.stream_bytes},
                              .threads = {1},
                              .seconds_per_point = 0.02}));
  for (const BandwidthPoint& point : machine.bandwidth) {
    report.machine_gb_per_s = std::max(report.machine_gb_per_s, point.gb_per_s);
  }
  return report;
}

}  // namespace kvarto
