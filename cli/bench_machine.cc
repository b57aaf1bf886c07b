#include "bench_machine.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "kvarto/measure.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

using Json = nlohmann::ordered_json;

Json machine_json(const MachineReport& report) {
  Json bandwidth = Json::array();
  for (const BandwidthPoint& point : report.bandwidth) {
    bandwidth.push_back({{"working_set_bytes", point.working_set_bytes},
                         {"threads", point.num_threads},
                         {"huge_pages_asked", point.wants_huge_pages},
                         {"huge_pages", point.has_huge_pages},
                         {"gb_per_s", point.gb_per_s}});
  }
  Json peaks = Json::array();
  for (const PeakPoint& peak : report.peaks) {
    peaks.push_back({{"name", peak.name}, {"isa", peak.isa}, {"gop_per_s", peak.gop_per_s}});
  }
  return {{"schema", "kvarto.machine/1"},
          {"isa", report.isa},
          {"cores", report.num_cores},
          {"bandwidth", bandwidth},
          {"peaks", peaks}};
}

}  // namespace

Status run_machine_bench(const MachineAsked& asked, Output& out) {
  MachineBench bench;
  for (const std::string& word : asked.threads) {
    KVARTO_TRY(const std::uint64_t threads, parse_count(word));
    if (threads > std::numeric_limits<std::uint32_t>::max()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--threads: found {}, expected at most 4294967295", threads));
    }
    bench.threads.push_back(static_cast<std::uint32_t>(threads));
  }
  KVARTO_TRY(const double seconds, parse_real(asked.seconds));
  bench.seconds_per_point = seconds / 10;  // some fifty points
  KVARTO_TRY(const MachineReport report, measure_machine(bench));
  if (asked.is_json) {
    out.verbatim(machine_json(report).dump(2) + "\n");
    return {};
  }
  out.heading(fmt::format("read bandwidth ({}, {} cores)", report.isa, report.num_cores));
  Table reads({{"working set"}, {"threads"}, {"pages", Table::Align::kLeft}, {"GB/s"}});
  for (const BandwidthPoint& point : report.bandwidth) {
    reads.row({short_bytes(point.working_set_bytes), grouped(point.num_threads),
               point.has_huge_pages ? "huge" : "small", fmt::format("{:.1f}", point.gb_per_s)});
  }
  reads.print(out);
  out.line();
  out.heading("arithmetic of one thread");
  Table peaks({{"loop", Table::Align::kLeft}, {"isa", Table::Align::kLeft}, {"GOP/s"}});
  for (const PeakPoint& peak : report.peaks) {
    peaks.row(
        {std::string(peak.name), std::string(peak.isa), fmt::format("{:.0f}", peak.gop_per_s)});
  }
  peaks.print(out);
  return {};
}

}  // namespace kvarto::cli
