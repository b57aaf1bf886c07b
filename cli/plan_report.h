// The answer of `kvarto plan`, gathered before it is printed as text or as JSON.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvarto/plan.h"
#include "output.h"

namespace kvarto::cli {

// What one engine fits into the memory for the cache; nullopt where there is no limit.
struct EngineFit {
  std::optional<std::uint64_t> largest_context;  // tokens a sequence, at the sequences asked for
  std::optional<std::uint64_t> largest_num_sequences;  // at the context asked for
};

struct EngineReport {
  EnginePlan plan;
  std::optional<EngineFit> fit;                 // with a memory budget
  std::optional<HardwareSpec> smallest_device;  // for this rank's cache, and its weights if known
};

struct PlanReport {
  ModelSpec model;                          // types set
  std::vector<std::string> types_by_layer;  // as asked for
  PlanRequest request;
  std::uint64_t context = 0;  // tokens a sequence
  bool is_default_context = false;
  SequenceCost sequence;
  StepCost step;
  std::vector<EngineReport> engines;
  std::vector<EngineRefusal> refusals;
  std::optional<HardwareSpec> device;
  std::optional<std::uint64_t> weight_bytes;  // of one rank
  std::vector<WhatIf> what_if;
  std::optional<ReservationComparison> reservation;
  std::vector<std::string> notes;
  bool is_explained = false;
};

void print_plan_text(const PlanReport& report, Output& out);
void print_plan_json(const PlanReport& report, Output& out);

}  // namespace kvarto::cli
