#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "numbers.h"
#include "plan_report.h"

namespace kvarto::cli {
namespace {

constexpr auto kLeft = Table::Align::kLeft;

const char* cause_meaning(Cause cause) {
  switch (cause) {
    case Cause::kPayload:
      return "elements of keys, values and latents";
    case Cause::kScales:
      return "scales of quantised elements";
    case Cause::kPadding:
      return "ends of rows and slices up to their alignment";
    case Cause::kBlockRounding:
      return "the unfilled rest of last blocks";
    case Cause::kCellPadding:
      return "context rounded up to the engine's cells";
    case Cause::kWindowSlack:
      return "rows held behind the window";
    case Cause::kPageUnification:
      return "smaller pages stretched to the largest";
    case Cause::kLayerGrouping:
      return "layers added so that groups are equal";
    case Cause::kIndexer:
      return "keys of the indexer";
    case Cause::kState:
      return "constant states of a sequence";
    case Cause::kSnapshots:
      return "copies of states to return to";
    case Cause::kReplication:
      return "what every rank holds again";
    case Cause::kDraft:
      return "layers of the draft";
    case Cause::kSpare:
      return "blocks that no sequence may use";
    case Cause::kMetadata:
      return "bookkeeping, summaries, positions";
    case Cause::kMask:
      return "masks of one step";
    case Cause::kWorkspace:
      return "scratch memory";
  }
  return "";
}

std::string types_text(const PlanReport& report) {
  const CacheTypes& types = report.request.types;
  std::string text =
      types.key == types.value ? types.key : fmt::format("K {}, V {}", types.key, types.value);
  if (!types.index.empty()) text += ", index " + types.index;
  for (const std::string& word : report.types_by_layer) text += ", layers " + word;
  return text;
}

void print_head(const PlanReport& report, Output& out) {
  out.heading(fmt::format("{}: {} layers, {}", report.model.name, report.model.num_layers,
                          fmt::join(architecture_names(report.model), " + ")));
  const std::uint64_t sequences = report.request.num_sequences;
  std::string line =
      fmt::format("  {} tokens a sequence{}, {} {}, type {}", grouped(report.context),
                  report.is_default_context ? " (default)" : "", grouped(sequences),
                  sequences == 1 ? "sequence" : "sequences", types_text(report));
  if (report.request.tensor_parallel > 1) {
    line += fmt::format(", one of {} ranks", report.request.tensor_parallel);
  }
  out.line(line);
  for (const std::string& note : report.notes) out.note(note);
}

void print_sequence(const PlanReport& report, Output& out) {
  out.line();
  out.heading("one sequence, ideally: fixed + slope x tokens");
  const SequenceCost& cost = report.sequence;
  Table table({{"", kLeft}, {"size"}, {"bytes"}});
  table.row({"fixed", short_bytes(cost.fixed_bytes), grouped(cost.fixed_bytes)});
  table.row({"slope a token", "", grouped_real(cost.slope_bytes_per_token)});
  table.row({fmt::format("at {} tokens", grouped(cost.context)), short_bytes(cost.bytes),
             grouped(cost.bytes)});
  table.print(out);
}

std::string or_dash(const std::optional<std::uint64_t>& number) {
  return number.has_value() ? grouped(*number) : "-";
}

const EnginePlan* ideal_of(const PlanReport& report) {
  for (const EngineReport& engine : report.engines) {
    if (engine.plan.engine == "ideal") return &engine.plan;
  }
  return nullptr;
}

// How much an engine takes beyond the ideal: "+9.66 %".
std::string above(const EnginePlan& plan, const EnginePlan& ideal) {
  if (ideal.bytes == 0) return "-";
  const double ratio = static_cast<double>(plan.bytes) / static_cast<double>(ideal.bytes);
  return fmt::format("{:+.2f} %", 100.0 * (ratio - 1.0));
}

// The causes by which `plan` takes more than `ideal`, the largest first, at most three.
std::string largest_causes(const EnginePlan& plan, const EnginePlan& ideal) {
  std::map<Cause, std::int64_t> differences;
  for (const LedgerEntry& entry : plan.ledger) {
    differences[entry.cause] += static_cast<std::int64_t>(entry.bytes);
  }
  for (const LedgerEntry& entry : ideal.ledger) {
    differences[entry.cause] -= static_cast<std::int64_t>(entry.bytes);
  }
  std::vector<std::pair<std::int64_t, Cause>> ranked;
  for (const auto& [cause, bytes] : differences) {
    if (bytes > 0) ranked.emplace_back(bytes, cause);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (ranked.size() > 3) ranked.resize(3);
  std::vector<std::string> words;
  for (const auto& [bytes, cause] : ranked) {
    words.push_back(fmt::format("{} more for {} ({})",
                                short_bytes(static_cast<std::uint64_t>(bytes)), cause_name(cause),
                                cause_meaning(cause)));
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

// The best and the worst engine beside the ideal, and why, in words.
void print_extremes(const PlanReport& report, Output& out) {
  const EnginePlan* ideal = ideal_of(report);
  const EnginePlan* best = nullptr;
  const EnginePlan* worst = nullptr;
  for (const EngineReport& engine : report.engines) {
    const EnginePlan* plan = &engine.plan;
    if (plan == ideal) continue;
    if (best == nullptr || plan->bytes < best->bytes) best = plan;
    if (worst == nullptr || plan->bytes > worst->bytes) worst = plan;
  }
  if (ideal == nullptr || best == worst) return;
  out.line(fmt::format("  best: {}, {} above the ideal", best->engine,
                       short_bytes(best->bytes - std::min(best->bytes, ideal->bytes))));
  std::string line = fmt::format("  worst: {}, {} above the ideal", worst->engine,
                                 short_bytes(worst->bytes - std::min(worst->bytes, ideal->bytes)));
  const std::string causes = largest_causes(*worst, *ideal);
  out.line(causes.empty() ? line : line + ": " + causes);
}

void print_engines(const PlanReport& report, Output& out) {
  out.line();
  out.heading(report.request.tensor_parallel > 1 ? "all sequences, one rank" : "all sequences");
  const EnginePlan* ideal = ideal_of(report);
  Table table({{"engine", kLeft},
               {"profile", kLeft},
               {"size"},
               {"bytes"},
               {ideal != nullptr ? "above ideal" : ""},
               {"smallest device", kLeft}});
  for (const EngineReport& engine : report.engines) {
    const bool is_compared = ideal != nullptr && &engine.plan != ideal;
    table.row({engine.plan.engine, engine.plan.profile, short_bytes(engine.plan.bytes),
               grouped(engine.plan.bytes), is_compared ? above(engine.plan, *ideal) : "",
               engine.smallest_device.has_value() ? engine.smallest_device->name : "none"});
  }
  table.print(out);
  // With memory stated, the blocks are those that fit (print_fit).
  for (const EngineReport& engine : report.engines) {
    if (engine.plan.blocks.has_value() && report.request.kv_memory_bytes == 0) {
      out.line(fmt::format("  {}: {} blocks", engine.plan.engine, grouped(*engine.plan.blocks)));
    }
  }
  if (report.weight_bytes.has_value()) {
    out.line(fmt::format("  the device holds the weights as well: {}",
                         exact_bytes(*report.weight_bytes)));
  }
}

// What the engines printed and said, after their figures.
void print_engine_words(const PlanReport& report, Output& out) {
  for (const EngineReport& engine : report.engines) {
    if (engine.plan.printed.empty()) continue;
    std::vector<std::string> figures;
    for (const auto& [name, text] : engine.plan.printed) figures.push_back(name + " " + text);
    out.line(fmt::format("  {} prints {}", engine.plan.engine, fmt::join(figures, ", ")));
  }
  for (const EngineReport& engine : report.engines) {
    for (const std::string& note : engine.plan.notes) {
      out.note(fmt::format("{}: {}", engine.plan.engine, note));
    }
  }
  for (const EngineRefusal& refusal : report.refusals) {
    out.note(fmt::format("{} cannot: {}", refusal.engine, refusal.error.message));
  }
}

std::string or_no_limit(const std::optional<std::uint64_t>& number) {
  return number.has_value() ? grouped(*number) : "no limit";
}

void print_fit(const PlanReport& report, Output& out) {
  out.line();
  out.heading(fmt::format("what fits into {}", exact_bytes(report.request.kv_memory_bytes)));
  Table table({{"engine", kLeft},
               {"largest context"},
               {"most sequences"},
               {"tokens"},
               {"concurrency"},
               {"blocks"}});
  bool is_beyond_model = false;
  for (const EngineReport& engine : report.engines) {
    if (!engine.fit.has_value()) continue;
    const auto context = engine.fit->largest_context;
    is_beyond_model = is_beyond_model || !context || *context > report.model.max_context;
    table.row({engine.plan.engine, or_no_limit(context),
               or_no_limit(engine.fit->largest_num_sequences), or_dash(engine.plan.tokens),
               engine.plan.max_concurrency.has_value()
                   ? fmt::format("{:.2f}", *engine.plan.max_concurrency)
                   : "-",
               or_dash(engine.plan.blocks)});
  }
  table.print(out);
  out.line(fmt::format(
      "  largest context: tokens a sequence for {} {}; most sequences: of {} tokens",
      grouped(report.request.num_sequences),
      report.request.num_sequences == 1 ? "sequence" : "sequences", grouped(report.context)));
  if (is_beyond_model && report.model.max_context > 0) {
    out.line(
        fmt::format("  the model itself ends at {} tokens", grouped(report.model.max_context)));
  }
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "";
  return fmt::format("{:.2f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string leaf_text(const LedgerEntry& entry) {
  std::string text = entry.stream;
  if (!entry.architecture.empty()) text += " of " + entry.architecture;
  if (entry.layers > 0) {
    text += fmt::format(", {} {}", entry.layers, entry.layers == 1 ? "layer" : "layers");
  }
  return text;
}

// One engine's ledger as a tree: the total, its causes, and each cause's streams.
void print_ledger(const EnginePlan& plan, Output& out) {
  out.line();
  out.heading(fmt::format("ledger of {}: where every byte goes", plan.engine));
  std::vector<Cause> causes;
  for (const LedgerEntry& entry : plan.ledger) {
    if (std::find(causes.begin(), causes.end(), entry.cause) == causes.end()) {
      causes.push_back(entry.cause);
    }
  }
  Table table({{"", kLeft}, {"size"}, {"bytes"}, {"share"}, {"", kLeft}});
  table.row(
      {"total", short_bytes(plan.bytes), grouped(plan.bytes), percent(plan.bytes, plan.bytes), ""});
  for (std::size_t c = 0; c < causes.size(); ++c) {
    std::vector<const LedgerEntry*> leaves;
    std::uint64_t sum = 0;
    for (const LedgerEntry& entry : plan.ledger) {
      if (entry.cause != causes[c]) continue;
      leaves.push_back(&entry);
      sum += entry.bytes;
    }
    const bool is_last = c + 1 == causes.size();
    table.row({fmt::format("{} {}", is_last ? "└─" : "├─", cause_name(causes[c])), short_bytes(sum),
               grouped(sum), percent(sum, plan.bytes), cause_meaning(causes[c])});
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const char* branch = i + 1 == leaves.size() ? "└─" : "├─";
      table.row({fmt::format("{}  {} {}", is_last ? " " : "│", branch, leaf_text(*leaves[i])),
                 short_bytes(leaves[i]->bytes), grouped(leaves[i]->bytes),
                 percent(leaves[i]->bytes, plan.bytes), ""});
    }
  }
  table.print(out);
}

std::string floor_text(const TimeFloor& floor) {
  return fmt::format("{} ({} binds; memory {}, arithmetic {})", short_seconds(floor.seconds()),
                     floor.is_memory_bound() ? "memory" : "arithmetic",
                     short_seconds(floor.memory_s), short_seconds(floor.arithmetic_s));
}

void print_step(const PlanReport& report, Output& out) {
  out.line();
  out.heading("work of attention");
  Table table({{"", kLeft}, {"", kLeft}});
  table.row({"one decode step reads", exact_bytes(report.step.read_bytes)});
  table.row({"one decode step computes", short_flop(report.step.decode_flop)});
  table.row({"prefill of one sequence computes", short_flop(report.step.prefill_flop)});
  if (report.device.has_value()) {
    const HardwareSpec& device = *report.device;
    table.row({fmt::format("decode step on {}, at least", device.name),
               floor_text(decode_floor(report.step, device))});
    table.row({fmt::format("prefill on {}, at least", device.name),
               floor_text(prefill_floor(report.step, device))});
  }
  table.print(out);
}

void print_what_if(const PlanReport& report, Output& out) {
  out.line();
  out.heading(fmt::format("what if: the same model under other architectures, {} x {} tokens",
                          grouped(report.request.num_sequences), grouped(report.context)));
  Table table({{"architecture", kLeft},
               {"K"},
               {"V"},
               {"other"},
               {"total"},
               {"saving against mha"},
               {"read a step"}});
  for (const WhatIf& row : report.what_if) {
    table.row({row.architecture, short_bytes(row.k_bytes), short_bytes(row.v_bytes),
               short_bytes(row.other_bytes), short_bytes(row.total_bytes),
               fmt::format("{:.2f} %", 100.0 * row.saving_against_mha),
               short_bytes(row.read_bytes_per_step)});
  }
  table.print(out);
  for (const WhatIf& row : report.what_if) {
    for (const std::string& note : row.notes) {
      out.note(fmt::format("{}: {}", row.architecture, note));
    }
  }
}

void print_reservation(const ReservationComparison& comparison, Output& out) {
  out.line();
  out.heading("reservation for sequences of the given lengths");
  Table table({{"", kLeft},
               {"tokens"},
               {"reserved"},
               {"bytes reserved"},
               {"bytes wasted"},
               {"utilisation"}});
  const auto add = [&](const std::string& name, const Reservation& reservation) {
    table.row({name, grouped(reservation.tokens), grouped(reservation.reserved_tokens),
               short_bytes(reservation.bytes), short_bytes(reservation.wasted_bytes),
               fmt::format("{:.2f} %", 100.0 * reservation.utilisation)});
  };
  add("contiguous", comparison.contiguous);
  add(fmt::format("paged, blocks of {}", grouped(comparison.block_size)), comparison.paged);
  table.print(out);
}

}  // namespace

void print_plan_text(const PlanReport& report, Output& out) {
  print_head(report, out);
  print_sequence(report, out);
  print_engines(report, out);
  print_extremes(report, out);
  print_engine_words(report, out);
  if (report.request.kv_memory_bytes > 0) print_fit(report, out);
  print_step(report, out);
  if (report.is_explained) {
    for (const EngineReport& engine : report.engines) print_ledger(engine.plan, out);
  }
  if (!report.what_if.empty()) print_what_if(report, out);
  if (report.reservation.has_value()) print_reservation(*report.reservation, out);
}

}  // namespace kvarto::cli
