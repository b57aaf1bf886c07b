#include "profile/run_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/call_check.h"
#include "kvarto/measure.h"
#include "profile/latency.h"

namespace kvarto {
namespace {

// The read stream of the machine is measured over at most this much.
constexpr std::uint64_t kMaxStreamBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kMinStreamBytes = std::uint64_t{1} << 16;
constexpr double kStreamSeconds = 0.05;

// Codecs of the fields of a row, "fp8_scaled_128 + bf16" where they differ.
std::string codec_names(const Stream& stream) {
  std::string names;
  for (const Field& field : stream.fields) {
    const std::string_view name = codec_info(field.codec).name;
    if (&field != &stream.fields.front() && field.codec == stream.fields.front().codec) continue;
    names += (names.empty() ? "" : " + ") + std::string(name);
  }
  return names;
}

class Reporter {
 public:
  Reporter(const ProfileRequest& request, ProfileLoop& loop, const RunPlans& plans)
      : request_(request), loop_(loop), plans_(plans) {}

  Status report(ProfileRun& run) {
    KVARTO_CHECK_OK(report_streams(run));
    report_size(run);
    report_access(run);
    run.lifetime = loop_.recorder().lifetimes();
    report_latency(run.steps, run.warm_up_steps, run.latency);
    KVARTO_TRY(run.latency.empty_call_us, loop_.empty_call_us());
    KVARTO_CHECK_OK(report_bandwidth(run));
    return verify(run);
  }

 private:
  [[nodiscard]] std::uint64_t num_layers() const { return loop_.layers().size(); }

  // One stream as the last step read it.
  struct Seen {
    StreamView stream;
    std::uint64_t row_bytes = 0;
    std::uint64_t inline_row_bytes = 0;  // without what lies behind all rows of the block
    std::vector<ReadRun> runs;
  };
  Result<Seen> seen_of(const Stream& stream, const CacheView& view) {
    const RowPairBytes bytes = row_pair_bytes(view);
    if (stream.purpose != Purpose::kIndexer) {
      const bool is_value = stream.name == "v";
      const std::uint64_t row_bytes = is_value ? bytes.v : bytes.k;
      return Seen{is_value ? view.v : view.k, row_bytes, row_bytes, loop_.recorder().runs()};
    }
    Seen seen;
    KVARTO_TRY(seen.stream, loop_.index_keys(0));
    const CodecBytes of_key = codec_bytes(seen.stream.codec, seen.stream.width);
    seen.row_bytes = of_key.total();
    seen.inline_row_bytes = head_bytes_in_row(stream, stream.fields.front());
    for (std::uint32_t s = 0; s < view.sequences.size(); ++s) {
      seen.runs.push_back({s, 0, view.sequences[s].num_tokens});
    }
    return seen;
  }

  Status report_streams(ProfileRun& run) {
    KVARTO_TRY(const LayerView view, loop_.view(0));
    const Track& track = loop_.cache().tracks().front();
    for (const TrackStream& of_track : track.streams) {
      if (of_track.group != 0) continue;  // of the layer whose selection is reused
      const Stream& stream = loop_.group().streams[of_track.stream];
      KVARTO_TRY(const Seen seen, seen_of(stream, view.cache()));
      StreamSize size;
      size.name = stream.name;
      size.codec = codec_names(stream);
      size.predicted_bytes = resident_rows(stream, loop_.num_tokens()) * row_bytes(stream).total() *
                             num_layers() * request_.num_sequences;
      std::uint64_t blocks = 0;
      for (const SequenceView& sequence : view.cache().sequences) {
        const std::uint64_t held = sequence.first_block * view.cache().rows_per_block;
        const std::uint64_t first = std::max(held, loop_.first_visible());
        size.measured_bytes += (sequence.num_tokens - first) * seen.row_bytes * num_layers();
        blocks += sequence.block_table.size();
      }
      size.predicted_held_bytes = resident_blocks(track, loop_.num_tokens()) *
                                  of_track.slice_bytes() * num_layers() * request_.num_sequences;
      size.held_bytes = blocks * seen.stream.block_stride_bytes * num_layers();
      run.size.streams.push_back(size);
      StreamLayoutReport layout;
      layout.name = stream.name;
      layout.slice_bytes = of_track.slice_bytes();
      layout.padding_bytes = of_track.padding_bytes;
      describe_reads({seen.stream, view.cache().rows_per_block, view.cache().sequences, seen.runs,
                      seen.inline_row_bytes},
                     layout);
      run.layout.streams.push_back(layout);
    }
    run.layout.block_size = track.rows_per_block;
    run.layout.block_bytes = track.block_bytes;
    return {};
  }

  void report_size(ProfileRun& run) {
    SizeReport& size = run.size;
    size.predicted_allocated_bytes = plans_.allocation.engines.front().bytes;
    size.allocated_bytes = loop_.cache().allocated_bytes();
    for (const LedgerEntry& entry : plans_.allocation.engines.front().ledger) {
      if (entry.cause == Cause::kMetadata) size.predicted_metadata_bytes += entry.bytes;
    }
    for (const TrackUsage& usage : loop_.cache().usage()) {
      size.metadata_bytes += usage.metadata_bytes;
      size.storage_bytes += usage.storage_bytes;
      size.resident_bytes += usage.resident_bytes;
      run.layout.huge_page_bytes += usage.huge_page_bytes;
      run.layout.is_huge_page_advised |= usage.is_huge_page_advised;
    }
    std::uint64_t measured = 0;
    std::uint64_t held = 0;
    for (const StreamSize& stream : size.streams) {
      measured += stream.measured_bytes;
      held += stream.held_bytes;
    }
    if (held != 0) {
      size.fragmentation = 1 - static_cast<double>(measured) / static_cast<double>(held);
    }
  }

  void report_access(ProfileRun& run) {
    AccessReport& access = run.access;
    const Stream& any = loop_.group().streams.front();
    const std::uint64_t copies = num_layers() * request_.num_sequences;
    const StepRecord& last = run.steps.back();
    access.predicted_rows = rows_read(any, last.tokens) * copies;
    access.measured_rows = last.counts.rows_read;
    for (const StreamSize& size : run.size.streams) {
      for (const Stream& stream : loop_.group().streams) {
        if (stream.name != size.name) continue;
        const std::uint64_t measured = stream.purpose == Purpose::kIndexer ? last.counts.index_bytes
                                       : size.name == "v"                  ? last.counts.v_bytes
                                                                           : last.counts.k_bytes;
        access.streams.push_back(
            {size.name, rows_read(stream, last.tokens) * row_bytes(stream).total() * copies,
             measured});
      }
    }
    access.predicted_step_bytes = plans_.ideal.step.read_bytes;
    const Stream* index = index_stream(loop_.group());
    for (const StepRecord& step : run.steps) {
      ++access.steps_checked;
      const std::uint64_t index_rows = index == nullptr ? 0 : rows_read(*index, step.tokens);
      if (step.counts.rows_read != rows_read(any, step.tokens) * copies ||
          step.counts.index_rows != index_rows * copies) {
        ++access.steps_that_differ;
      }
    }
  }

  Status report_bandwidth(ProfileRun& run) {
    std::vector<double> attention_s;
    for (std::size_t i = run.warm_up_steps; i < run.steps.size(); ++i) {
      attention_s.push_back(run.steps[i].attention_s);
    }
    const StepCounts& counts = run.steps[run.warm_up_steps + attention_s.size() / 2].counts;
    const std::uint64_t bytes = counts.k_bytes + counts.v_bytes + counts.index_bytes;
    const double median = median_s(attention_s);
    if (median > 0) run.access.gb_per_s = static_cast<double>(bytes) / median / 1e9;
    MachineBench bench;
    bench.working_sets_bytes = {std::max(std::clamp(bytes, kMinStreamBytes, kMaxStreamBytes),
                                         kMinStreamBytes * request_.num_threads)};
    bench.threads = {request_.num_threads};
    bench.seconds_per_point = kStreamSeconds;
    KVARTO_TRY(const MachineReport machine, measure_machine(bench));
    for (const BandwidthPoint& point : machine.bandwidth) {
      run.access.machine_gb_per_s = std::max(run.access.machine_gb_per_s, point.gb_per_s);
    }
    return {};
  }

  Status verify(ProfileRun& run) {
    const auto add = [&](const char* statement, bool is_met, std::string detail) {
      run.verified.push_back({statement, is_met, std::move(detail)});
    };
    const SizeReport& size = run.size;
    add("planned bytes = allocated bytes", size.predicted_allocated_bytes == size.allocated_bytes,
        fmt::format("{} = {}", size.predicted_allocated_bytes, size.allocated_bytes));
    bool is_equal = true;
    std::uint64_t predicted = 0;
    std::uint64_t measured = 0;
    for (const StreamSize& stream : size.streams) {
      is_equal &= stream.predicted_bytes == stream.measured_bytes &&
                  stream.predicted_held_bytes == stream.held_bytes;
      predicted += stream.predicted_bytes;
      measured += stream.measured_bytes;
    }
    add("planned bytes of every stream = measured bytes", is_equal,
        fmt::format("{} = {}", predicted, measured));
    const AccessReport& access = run.access;
    std::uint64_t read = 0;
    is_equal = access.steps_that_differ == 0;
    for (const StreamAccess& stream : access.streams) {
      is_equal &= stream.predicted_bytes == stream.measured_bytes;
      read += stream.measured_bytes;
    }
    add("bytes read = bytes predicted, in every step",
        is_equal && read == access.predicted_step_bytes,
        fmt::format("{} = {} in the last of {} steps", read, access.predicted_step_bytes,
                    access.steps_checked));
    KVARTO_CHECK_OK(verify_rows(run));
    return verify_poison(run);
  }

  Status verify_rows(ProfileRun& run) {
    KVARTO_TRY(const ReadBack rows, loop_.read_back());
    run.verified.push_back(
        {"cached rows are those that were written", rows.num_differing == 0,
         fmt::format(
             "{} of {} elements differ from what their type stores; its rounding moved them "
             "by up to {:.1e}",
             rows.num_differing, rows.num_elements, rows.rounding)});
    return {};
  }

  // Fills all rows of layer 0 that `runs` does not name with NaN; returns how many.
  Result<std::uint64_t> poison_all_but(std::span<const ReadRun> runs) {
    KVARTO_TRY(const LayerView view, loop_.view(0));
    const CacheView& cache = view.cache();
    const std::uint64_t num_blocks = loop_.cache().usage().front().num_blocks;
    // Not through writable_base(): the squares of the rows that are read stay as they are.
    const auto writable = [](const std::byte* base) { return const_cast<std::byte*>(base); };
    const RowPairBytes bytes = row_pair_bytes(cache);
    std::uint64_t rows =
        poison_unread({cache.k, cache.rows_per_block, cache.sequences, runs, bytes.k},
                      writable(cache.k.base), num_blocks);
    if (bytes.v != 0) {
      rows += poison_unread({cache.v, cache.rows_per_block, cache.sequences, runs, bytes.v},
                            writable(cache.v.base), num_blocks);
    }
    return rows;
  }

  // The last thing to verify: it destroys the cache's contents.
  Status verify_poison(ProfileRun& run) {
    KVARTO_TRY(std::span<const float> out, loop_.decode_again());
    const std::vector<float> before(out.begin(), out.end());
    const auto is_same = [&] { return std::equal(before.begin(), before.end(), out.begin()); };
    std::vector<ReadRun> runs = loop_.recorder().runs();
    KVARTO_TRY(const std::uint64_t rows, poison_all_but(runs));
    KVARTO_TRY(out, loop_.decode_again());
    const bool is_untouched = is_same();
    // The counter-test: a row that is read, filled likewise, must show.
    ++runs.front().first_row;
    --runs.front().num_rows;
    KVARTO_CHECK_OK(poison_all_but(runs));
    KVARTO_TRY(out, loop_.decode_again());
    const bool is_seen = !is_same();
    run.verified.push_back(
        {"poisoned neighbours untouched", is_untouched && is_seen,
         fmt::format("{} unread rows filled with NaN: output {}; one read row filled: output {}",
                     rows, is_untouched ? "the same" : "changed",
                     is_seen ? "changed" : "the same")});
    return {};
  }

  const ProfileRequest& request_;
  ProfileLoop& loop_;
  RunPlans plans_;
};

}  // namespace

Status report_run(const ProfileRequest& request, ProfileLoop& loop, const RunPlans& plans,
                  ProfileRun& run) {
  return Reporter(request, loop, plans).report(run);
}

}  // namespace kvarto
