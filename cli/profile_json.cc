#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "profile_report.h"

namespace kvarto::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMicro = 1e6;

template <typename Key>
Json histogram_json(const std::map<Key, std::uint64_t>& counts, const char* unit) {
  Json list = Json::array();
  for (const auto& bin : counts) list.push_back({{unit, bin.first}, {"count", bin.second}});
  return list;
}

Json size_json(const SizeReport& size) {
  Json streams = Json::array();
  for (const StreamSize& stream : size.streams) {
    streams.push_back({{"name", stream.name},
                       {"codec", stream.codec},
                       {"predicted_bytes", stream.predicted_bytes},
                       {"measured_bytes", stream.measured_bytes},
                       {"predicted_held_bytes", stream.predicted_held_bytes},
                       {"held_bytes", stream.held_bytes}});
  }
  return {{"streams", streams},
          {"predicted_allocated_bytes", size.predicted_allocated_bytes},
          {"allocated_bytes", size.allocated_bytes},
          {"predicted_metadata_bytes", size.predicted_metadata_bytes},
          {"metadata_bytes", size.metadata_bytes},
          {"mask_bytes", 0},
          {"storage_bytes", size.storage_bytes},
          {"resident_bytes", size.resident_bytes},
          {"fragmentation", size.fragmentation}};
}

Json layout_json(const LayoutReport& layout) {
  Json streams = Json::array();
  for (const StreamLayoutReport& stream : layout.streams) {
    streams.push_back({{"name", stream.name},
                       {"axes", stream.axes},
                       {"slice_bytes", stream.slice_bytes},
                       {"padding_bytes", stream.padding_bytes},
                       {"run_rows", histogram_json(stream.run_rows, "rows")}});
  }
  return {{"layout", layout.asked},
          {"block_size", layout.block_size},
          {"block_bytes", layout.block_bytes},
          {"huge_page_bytes", layout.huge_page_bytes},
          {"huge_pages_advised", layout.is_huge_page_advised},
          {"streams", streams}};
}

Json lifetime_json(const std::vector<TrackLife>& tracks) {
  Json list = Json::array();
  for (const TrackLife& life : tracks) {
    list.push_back({{"lifetime", to_string(life.track.lifetime)},
                    {"tokens_per_row", life.track.tokens_per_row},
                    {"rows_per_block", life.track.rows_per_block},
                    {"births", life.births},
                    {"deaths", life.deaths},
                    {"resident", life.resident},
                    {"reused", life.reused},
                    {"never_read", life.never_read},
                    {"mean_age_steps", life.mean_age},
                    {"max_age_steps", life.max_age},
                    {"mean_idle_steps", life.mean_idle},
                    {"max_idle_steps", life.max_idle},
                    {"reuse_gaps", histogram_json(life.reuse_gaps, "steps")},
                    {"timeline", life.timeline}});
  }
  return {{"tracks", list}};
}

Json access_json(const ProfileRun& run) {
  const AccessReport& access = run.access;
  Json streams = Json::array();
  for (const StreamAccess& stream : access.streams) {
    Json json = {{"name", stream.name},
                 {"predicted_bytes", stream.predicted_bytes},
                 {"measured_bytes", stream.measured_bytes}};
    for (const StreamLayoutReport& layout : run.layout.streams) {
      if (layout.name != stream.name) continue;
      json["line_utilisation"] = layout.line_utilisation;
      json["strides"] = histogram_json(layout.jumps, "bytes");
    }
    streams.push_back(json);
  }
  Json json = {{"streams", streams},
               {"predicted_rows", access.predicted_rows},
               {"measured_rows", access.measured_rows},
               {"predicted_step_bytes", access.predicted_step_bytes},
               {"steps_checked", access.steps_checked},
               {"steps_that_differ", access.steps_that_differ},
               {"gb_per_s", access.gb_per_s},
               {"machine_gb_per_s", access.machine_gb_per_s}};
  if (access.counters.empty()) {
    json["hardware_counters"] = access.counters_note;
  } else {
    json["hardware_counters"] = Json::object();
    for (const CounterValue& counter : access.counters) {
      json["hardware_counters"][counter.name] = counter.per_step;
    }
  }
  return json;
}

Json summary_json(const LatencySummary& summary) {
  return {{"steps", summary.steps},
          {"min_us", summary.min_us},
          {"median_us", summary.median_us},
          {"mean_us", summary.mean_us},
          {"p90_us", summary.p90_us},
          {"p99_us", summary.p99_us},
          {"max_us", summary.max_us},
          {"stddev_us", summary.stddev_us},
          {"stddev_95_us", {summary.stddev_low_us, summary.stddev_high_us}}};
}

Json latency_json(const LatencyReport& latency) {
  Json json = summary_json(latency.steps);
  json["warm_up"] = summary_json(latency.warm_up);
  json["phases"] = Json::array();
  for (const PhaseTime& phase : latency.phases) {
    json["phases"].push_back(
        {{"name", phase.name}, {"median_us", phase.median_us}, {"share", phase.share}});
  }
  json["empty_call_us"] = latency.empty_call_us;
  json["slowest"] = Json::array();
  for (const SlowStep& step : latency.slowest) {
    json["slowest"].push_back(
        {{"tokens", step.tokens}, {"total_us", step.total_us}, {"cause", step.cause}});
  }
  return json;
}

Json run_json(const ProfileRun& run) {
  Json verified = Json::array();
  for (const Verified& statement : run.verified) {
    verified.push_back({{"statement", statement.statement},
                        {"met", statement.is_met},
                        {"detail", statement.detail}});
  }
  return {{"architecture", run.architecture},
          {"type", run.type},
          {"context", run.context},
          {"batch", run.batch},
          {"layers", run.layers},
          {"layers_alike", run.group_layers},
          {"selection_layer",
           run.selection_layer.has_value() ? Json(*run.selection_layer) : Json(nullptr)},
          {"kernel", run.kernel},
          {"isa", run.isa},
          {"arith", run.arith},
          {"query_bits", run.query_bits},
          {"threads", run.num_threads},
          {"partial", run.is_partial},
          {"size", size_json(run.size)},
          {"layout", layout_json(run.layout)},
          {"lifetime", lifetime_json(run.lifetime)},
          {"access", access_json(run)},
          {"latency", latency_json(run.latency)},
          {"prefill",
           {{"tokens", run.prefill.tokens},
            {"append_us", run.prefill.append_s * kMicro},
            {"write_us", run.prefill.write_s * kMicro},
            {"attended_tokens", run.prefill.attended_tokens},
            {"attention_us", run.prefill.attention_s * kMicro}}},
          {"verified", verified}};
}

// Events of one run, on a row of its own.
void add_events(const ProfileRun& run, std::size_t row, double offset_us, Json& events) {
  const auto add = [&](const char* name, double begin_s, double seconds, Json arguments) {
    events.push_back({{"name", name},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", row},
                      {"ts", offset_us + begin_s * kMicro},
                      {"dur", seconds * kMicro},
                      {"args", std::move(arguments)}});
  };
  events.push_back({{"name", "thread_name"},
                    {"ph", "M"},
                    {"pid", 1},
                    {"tid", row},
                    {"args", {{"name", run.architecture + " " + run.type}}}});
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const StepRecord& step = run.steps[i];
    add("step", step.begin_s, step.total_s,
        {{"tokens", step.tokens},
         {"rows_read", step.counts.rows_read},
         {"blocks_taken", step.counts.blocks_taken},
         {"blocks_freed", step.counts.blocks_freed},
         {"page_faults", step.minor_faults + step.major_faults},
         {"switches", step.switches},
         {"warm_up", i < run.warm_up_steps}});
    double at = step.begin_s;
    const auto phase = [&](const char* name, double seconds) {
      add(name, at, seconds, Json::object());
      at += seconds;
    };
    phase("append", step.append_s);
    phase("write rows", step.write_s);
    if (step.index_s > 0) phase("index", step.index_s);
    phase("read plan", step.counts.plan_s);
    phase("score and accumulate", step.counts.pass_s);
    phase("merge", step.counts.merge_s);
    for (std::size_t track = 0; track < run.lifetime.size(); ++track) {
      const std::vector<std::uint64_t>& timeline = run.lifetime[track].timeline;
      if (i + 1 >= timeline.size()) continue;
      events.push_back(
          {{"name", fmt::format("blocks of {} {}, track {}", run.architecture, run.type, track)},
           {"ph", "C"},
           {"pid", 1},
           {"tid", row},
           {"ts", offset_us + (step.begin_s + step.total_s) * kMicro},
           {"args", {{"in use", timeline[i + 1]}}}});
    }
  }
}

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void print_profile_json(const ProfileReport& report, Output& out) {
  Json runs = Json::array();
  for (const ProfileRun& run : report.runs) runs.push_back(run_json(run));
  Json planned = Json::array();
  for (const PlannedRow& row : report.planned) {
    planned.push_back({{"architecture", row.architecture},
                       {"type", row.type},
                       {"total_bytes", row.total_bytes},
                       {"read_bytes_per_step", row.read_bytes_per_step},
                       {"reason", row.reason}});
  }
  const Json json = {{"schema", "kvarto.profile/1"},
                     {"model", {{"name", report.model}, {"layers", report.model_layers}}},
                     {"context", report.context},
                     {"is_default_context", report.is_default_context},
                     {"batch", report.num_sequences},
                     {"steps", report.num_steps},
                     {"partial", report.is_partial},
                     {"runs", runs},
                     {"planned", planned},
                     {"notes", report.notes}};
  out.verbatim(text_of(json, 2));
}

std::string chrome_trace(const ProfileReport& report) {
  Json events = Json::array();
  double offset_us = 0;
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    const ProfileRun& run = report.runs[i];
    add_events(run, i + 1, offset_us, events);
    if (!run.steps.empty()) {
      offset_us += (run.steps.back().begin_s + run.steps.back().total_s) * kMicro;
    }
  }
  return text_of({{"displayTimeUnit", "ms"}, {"traceEvents", events}}, -1);
}

}  // namespace kvarto::cli
