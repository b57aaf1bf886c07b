#include <fmt/format.h>

#include <algorithm>

#include "numbers.h"
#include "profile_report.h"

namespace kvarto::cli {
namespace {

constexpr double kPerMicro = 1e-6;
// Bins of a histogram that are printed.
constexpr std::size_t kMaxBins = 4;

std::string micro(double us) { return short_seconds(us * kPerMicro); }

std::uint64_t measured_bytes(const ProfileRun& run) {
  std::uint64_t bytes = 0;
  for (const StreamSize& stream : run.size.streams) bytes += stream.measured_bytes;
  return bytes;
}

std::uint64_t bytes_read(const ProfileRun& run) {
  std::uint64_t bytes = 0;
  for (const StreamAccess& stream : run.access.streams) bytes += stream.measured_bytes;
  return bytes;
}

std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }

std::string layers_of(const ProfileRun& run) {
  if (run.layers.size() == run.group_layers) return grouped(run.layers.size());
  return fmt::format("{} of {}", run.layers.size(), run.group_layers);
}

void print_comparison(const ProfileReport& report, Output& out) {
  using Align = Table::Align;
  Table table({{"architecture", Align::kLeft},
               {"type", Align::kLeft},
               {"layers"},
               {"cache"},
               {"against first"},
               {"read a step"},
               {"GB/s"},
               {"of machine"},
               {"median"},
               {"P99"},
               {"std. dev."},
               {"as planned", Align::kLeft}});
  const double first =
      !report.runs.empty()      ? static_cast<double>(measured_bytes(report.runs.front()))
      : !report.planned.empty() ? static_cast<double>(report.planned.front().total_bytes)
                                : 0;
  const auto against = [&](std::uint64_t bytes) {
    return first == 0 ? std::string("-") : percent(static_cast<double>(bytes) / first);
  };
  for (const ProfileRun& run : report.runs) {
    const double share =
        run.access.machine_gb_per_s == 0 ? 0 : run.access.gb_per_s / run.access.machine_gb_per_s;
    table.row({run.architecture, run.type, layers_of(run), short_bytes(measured_bytes(run)),
               against(measured_bytes(run)), short_bytes(bytes_read(run)),
               fmt::format("{:.1f}", run.access.gb_per_s), percent(share),
               micro(run.latency.steps.median_us), micro(run.latency.steps.p99_us),
               micro(run.latency.steps.stddev_us),
               std::string(run.is_all_met() ? "yes" : "NO") + (run.is_partial ? ", partial" : "")});
  }
  for (const PlannedRow& row : report.planned) {
    table.row({row.architecture, row.type, "-", short_bytes(row.total_bytes),
               against(row.total_bytes), short_bytes(row.read_bytes_per_step), "-", "-", "-", "-",
               "-", "planned, does not run yet"});
  }
  table.print(out);
  out.line(
      "  cache: bytes of the rows that a step can see; median and P99: one decode step of all "
      "sequences");
  out.line(
      "  of machine: against a plain read of as many bytes by as many threads, in this program");
}

template <typename Key>
std::string histogram(const std::map<Key, std::uint64_t>& counts, const char* unit) {
  std::vector<std::pair<Key, std::uint64_t>> bins(counts.begin(), counts.end());
  std::stable_sort(bins.begin(), bins.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t i = 0; i < std::min(bins.size(), kMaxBins); ++i) {
    text += fmt::format("{}{} x {} {}", i == 0 ? "" : ", ", grouped(bins[i].second), bins[i].first,
                        unit);
  }
  if (bins.size() > kMaxBins) text += fmt::format(", {} more sizes", bins.size() - kMaxBins);
  return text.empty() ? "none" : text;
}

void print_size(const ProfileRun& run, Output& out) {
  Table table({{"size", Table::Align::kLeft}, {"planned"}, {"measured"}, {"difference"}});
  const auto row = [&](const std::string& name, std::uint64_t planned, std::uint64_t measured) {
    const bool is_more = measured >= planned;
    table.row(
        {name, grouped(planned), grouped(measured),
         planned == measured
             ? "0"
             : (is_more ? "+" : "-") + grouped(is_more ? measured - planned : planned - measured)});
  };
  for (const StreamSize& stream : run.size.streams) {
    row(fmt::format("{} rows ({})", stream.name, stream.codec), stream.predicted_bytes,
        stream.measured_bytes);
    row(stream.name + " blocks held", stream.predicted_held_bytes, stream.held_bytes);
  }
  row("bookkeeping", run.size.predicted_metadata_bytes, run.size.metadata_bytes);
  row("allocated in all", run.size.predicted_allocated_bytes, run.size.allocated_bytes);
  for (const StreamAccess& stream : run.access.streams) {
    row(stream.name + " read, last step", stream.predicted_bytes, stream.measured_bytes);
  }
  table.print(out);
  out.line(
      fmt::format("  resident {} of {} as the system sees it; {} of the blocks held is not rows",
                  short_bytes(run.size.resident_bytes), short_bytes(run.size.storage_bytes),
                  percent(run.size.fragmentation)));
}

void print_layout(const ProfileRun& run, Output& out) {
  const LayoutReport& layout = run.layout;
  out.line(fmt::format("  layout    {}: blocks of {} tokens, {} bytes; {} in huge pages{}",
                       layout.asked, layout.block_size, grouped(layout.block_bytes),
                       short_bytes(layout.huge_page_bytes),
                       layout.is_huge_page_advised ? "" : " (the system offers none)"));
  for (const StreamLayoutReport& stream : layout.streams) {
    out.line(fmt::format("    {}  {}, {} bytes a block ({} padding); cache lines used {}",
                         stream.name, stream.axes, grouped(stream.slice_bytes),
                         grouped(stream.padding_bytes), percent(stream.line_utilisation)));
    out.line(fmt::format("       unbroken reads {}; jumps of up to {}",
                         histogram(stream.run_rows, "rows"), histogram(stream.jumps, "B")));
  }
}

void print_lifetime(const ProfileRun& run, Output& out) {
  for (const TrackLife& life : run.lifetime) {
    out.line(fmt::format(
        "  lifetime  {}: {} blocks born, {} died, {} still there; age {:.1f} steps (at most {}), "
        "idle {:.1f} (at most {}); {} never read by decode, {} used again",
        to_string(life.track.lifetime), grouped(life.births), grouped(life.deaths),
        grouped(life.resident), life.mean_age, life.max_age, life.mean_idle, life.max_idle,
        grouped(life.never_read), grouped(life.reused)));
    out.line(fmt::format("            read again after {}", histogram(life.reuse_gaps, "steps")));
  }
}

void print_access(const ProfileRun& run, Output& out) {
  const AccessReport& access = run.access;
  out.line(fmt::format("  access    {} rows a step, {} planned; {:.1f} GB/s of {:.1f}",
                       grouped(access.measured_rows), grouped(access.predicted_rows),
                       access.gb_per_s, access.machine_gb_per_s));
  if (access.counters.empty()) {
    out.line("            hardware counters " + access.counters_note);
    return;
  }
  std::string text;
  for (const CounterValue& counter : access.counters) {
    text += fmt::format("{}{} {:.3g}", text.empty() ? "" : ", ", counter.name, counter.per_step);
  }
  out.line("            hardware counters a step: " + text);
}

std::string summary(const LatencySummary& each) {
  return fmt::format("min {}, median {}, P90 {}, P99 {}, max {}", micro(each.min_us),
                     micro(each.median_us), micro(each.p90_us), micro(each.p99_us),
                     micro(each.max_us));
}

void print_latency(const ProfileRun& run, Output& out) {
  const LatencyReport& latency = run.latency;
  out.line(fmt::format("  latency   {} steps: {}", latency.steps.steps, summary(latency.steps)));
  out.line(fmt::format("            standard deviation {} (95 %: {} to {}); an empty call {}",
                       micro(latency.steps.stddev_us), micro(latency.steps.stddev_low_us),
                       micro(latency.steps.stddev_high_us), micro(latency.empty_call_us)));
  out.line(fmt::format("            warm-up apart, {} steps: {}", latency.warm_up.steps,
                       summary(latency.warm_up)));
  std::string phases;
  for (const PhaseTime& phase : latency.phases) {
    phases += fmt::format("{}{} {} ({})", phases.empty() ? "" : ", ", phase.name,
                          micro(phase.median_us), percent(phase.share));
  }
  out.line("            phases: " + phases);
  for (const SlowStep& step : latency.slowest) {
    out.line(fmt::format("            slow: {} at {} tokens: {}", micro(step.total_us),
                         grouped(step.tokens), step.cause));
  }
  out.line(
      fmt::format("  prefill   {} tokens: reserved in {}, written in {}; attention of the last "
                  "{}: {}",
                  grouped(run.prefill.tokens), short_seconds(run.prefill.append_s),
                  short_seconds(run.prefill.write_s), grouped(run.prefill.attended_tokens),
                  short_seconds(run.prefill.attention_s)));
}

void print_run(const ProfileRun& run, Output& out) {
  out.line();
  out.heading(fmt::format("{}, {}: {} on {}, arithmetic {}, {} thread{}{}", run.architecture,
                          run.type, run.kernel, run.isa, run.arith, run.num_threads,
                          run.num_threads == 1 ? "" : "s", run.is_partial ? ", PARTIAL" : ""));
  if (run.selection_layer.has_value()) {
    out.line(
        fmt::format("  layer {} reads the rows that layer {} selects; bytes and times are its "
                    "own, \"allocated in all\" has both",
                    run.layers.front(), *run.selection_layer));
  }
  print_size(run, out);
  print_layout(run, out);
  print_lifetime(run, out);
  print_access(run, out);
  print_latency(run, out);
}

// Every statement once, with the runs in which it is met; those that fail in full.
void print_brief_verified(const ProfileReport& report, Output& out) {
  if (report.runs.empty()) return;
  for (const Verified& statement : report.runs.front().verified) {
    std::size_t num_met = 0;
    std::vector<std::string> failures;
    for (const ProfileRun& run : report.runs) {
      for (const Verified& each : run.verified) {
        if (each.statement != statement.statement) continue;
        if (each.is_met) {
          ++num_met;
        } else {
          failures.push_back(fmt::format("  NO    {} {}: {} ({})", run.architecture, run.type,
                                         each.statement, each.detail));
        }
      }
    }
    if (num_met > 0) {
      out.line(fmt::format("  yes   {} ({} of {} runs)", statement.statement, num_met,
                           report.runs.size()));
    }
    for (const std::string& failure : failures) out.line(failure);
  }
}

void print_verified(const ProfileReport& report, Output& out) {
  if (report.runs.empty()) return;
  out.line();
  out.heading("verified");
  if (report.is_brief) return print_brief_verified(report, out);
  for (const ProfileRun& run : report.runs) {
    for (const Verified& statement : run.verified) {
      out.line(fmt::format("  {:<4}  {} {}: {} ({})", statement.is_met ? "yes" : "NO",
                           run.architecture, run.type, statement.statement, statement.detail));
    }
  }
}

}  // namespace

void print_profile_text(const ProfileReport& report, Output& out) {
  out.heading(fmt::format(
      "{}: {} tokens a sequence{}, {} sequence{}, the last {} token{} decoded one "
      "by one{}",
      report.model, grouped(report.context), report.is_default_context ? " (default)" : "",
      grouped(report.num_sequences), report.num_sequences == 1 ? "" : "s",
      grouped(report.num_steps), report.num_steps == 1 ? "" : "s",
      report.is_partial ? " - PARTIAL, stopped early" : ""));
  print_comparison(report, out);
  if (!report.is_brief) {
    for (const ProfileRun& run : report.runs) print_run(run, out);
  }
  print_verified(report, out);
  std::string said;
  for (const PlannedRow& row : report.planned) {
    // Once for all types.
    if (report.is_brief || row.architecture == said) continue;
    said = row.architecture;
    out.note(fmt::format("{} is planned, not run: {}", row.architecture, row.reason));
  }
  for (const std::string& note : report.notes) out.note(note);
}

}  // namespace kvarto::cli
