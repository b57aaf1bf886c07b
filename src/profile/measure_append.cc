#include "kvarto/measure_append.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "base/checked.h"

namespace kvarto {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One stream of one layer, and a row for it. Whatever the bits, they are packed at the same speed;
// small numbers keep subnormals and NaNs out.
struct RowWriter {
  StreamId stream{};
  std::uint64_t tokens_per_row = 1;
  std::uint64_t cached_bytes = 0;
  std::vector<std::byte> row;
};

std::vector<std::byte> random_row(std::uint64_t elements, Codec codec, std::minstd_rand& random) {
  const std::uint64_t element_bytes = codec_info(codec).element_bits / 8;
  std::vector<std::byte> row(elements * element_bytes);
  // The upper byte of 0x3C is between 0.0078 and 2 in all three formats.
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool is_upper = i % element_bytes == element_bytes - 1;
    row[i] = is_upper ? std::byte{0x3C} : static_cast<std::byte>(random());
  }
  return row;
}

Result<std::vector<RowWriter>> make_writers(const KvCache& cache, Codec source) {
  std::vector<RowWriter> writers;
  std::minstd_rand random(1);
  for (const LayerGroup& group : cache.model().groups) {
    for (const std::uint32_t layer : group.layers) {
      for (const Stream& stream : group.streams) {
        if (stream.owner_layer || stream.lifetime.kind == Lifetime::Kind::kStep) continue;
        std::uint64_t elements = 0;
        for (const Field& field : stream.fields) {
          const std::uint32_t heads =
              stream.shard == Shard::kHead
                  ? heads_on_rank(field.heads, cache.options().tensor_parallel)
                  : field.heads;
          elements += std::uint64_t{heads} * field.width;
        }
        KVARTO_TRY(const StreamId id, cache.find_stream(layer, stream.name));
        const bool is_state = stream.lifetime.kind == Lifetime::Kind::kConstant;
        writers.push_back({.stream = id,
                           .tokens_per_row = is_state ? 0 : stream.tokens_per_row,
                           .cached_bytes = row_bytes(stream).total(),
                           .row = random_row(elements, source, random)});
      }
    }
  }
  return writers;
}

// Writes the rows that the newest token has borne; returns their bytes.
Result<std::uint64_t> write_newest(KvCache& cache, SequenceId sequence, std::uint64_t num_tokens,
                                   const std::vector<RowWriter>& writers, Codec source) {
  std::uint64_t bytes = 0;
  for (const RowWriter& writer : writers) {
    const std::uint64_t m = writer.tokens_per_row;
    if (m != 0 && num_tokens % m != 0) continue;
    const std::uint64_t row = m == 0 ? 0 : num_tokens / m - 1;
    KVARTO_CHECK_OK(cache.write(sequence, writer.stream, row, {source, writer.row}));
    bytes += writer.cached_bytes;
  }
  return bytes;
}

Status append_one(KvCache& cache, SequenceId sequence, std::uint64_t num_tokens) {
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
      KVARTO_CHECK_OK(append_one(cache, sequences.back(), count));
      done += count;
    }
  }
  return sequences;
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

Result<AppendTiming> measure_append(const AppendCase& request) {
  const auto tokens = checked_add(request.warm_up_runs, request.runs);
  const auto length = tokens ? checked_add(*tokens, request.kv_len) : std::nullopt;
  if (request.runs == 0 || !length || *length > request.options.context) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("measure append: {} tokens, then {} and {} runs, expected at least 1 "
                    "run and at most {} in all",
                    request.kv_len, request.warm_up_runs, request.runs, request.options.context));
  }
  CacheOptions options = request.options;
  options.is_populated = true;  // page faults are not what a long-running cache pays
  KVARTO_TRY(KvCache cache, KvCache::create(request.model, options));
  KVARTO_TRY(const std::vector<RowWriter> writers, make_writers(cache, request.source));
  KVARTO_TRY(const std::vector<SequenceId> sequences, grown_sequences(cache, request.kv_len));
  AppendTiming timing;
  timing.isa = cache.isa();
  for (const TrackUsage& usage : cache.usage()) {
    timing.has_huge_pages = timing.has_huge_pages || usage.huge_page_bytes > 0;
  }
  std::uint64_t total_bytes = 0;
  for (std::uint64_t run = 0; run < *tokens; ++run) {
    const Clock::time_point begin = Clock::now();
    for (const SequenceId sequence : sequences) {
      KVARTO_CHECK_OK(append_one(cache, sequence, 1));
    }
    const double reserve_s = seconds_since(begin);
    std::uint64_t bytes = 0;
    for (const SequenceId sequence : sequences) {
      KVARTO_TRY(const std::uint64_t written,
                 write_newest(cache, sequence, request.kv_len + run + 1, writers, request.source));
      bytes += written;
    }
    const double step_s = seconds_since(begin);
    if (run < request.warm_up_runs) continue;
    timing.step_s.push_back(step_s);
    timing.reserve_s.push_back(reserve_s);
    total_bytes += bytes;
  }
  timing.bytes_per_step = total_bytes / request.runs;
  return timing;
}

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
      KVARTO_CHECK_OK(append_one(cache, sequence, 1));
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
