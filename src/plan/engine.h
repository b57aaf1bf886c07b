// Engines: what each allocates for the streams of a model. One file an engine in `engines/`; the
// list in engine.cc is the only place that knows them all.
//
// An engine is a pure function from a case to a plan. It sees the streams as the ideal engine does
// and adds its own rounding, each under a cause; it fills `printed` with what its log would show.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/plan.h"

namespace kvarto {

// What an engine is asked to plan. The references outlive the call.
struct EngineCase {
  // The model as read. Engines whose type rules differ from with_types() apply their own to it.
  const ModelSpec& source;
  // The same with the requested types in force, whole (not divided by ranks).
  const ModelSpec& model;
  // The draft layers that run, types in force; empty without speculation.
  std::span<const LayerGroup> draft_groups;
  // The request with `context` resolved; num_sequences and the parallel sizes are at least 1.
  const PlanRequest& request;
  // One of the engine's profiles.
  std::string_view profile;
};

// Plans one case. The plan's engine and profile are set by the caller; its bytes must be the sum of
// its ledger (Ledger::finish sees to it). Errors: kInvalidArgument for sizes that overflow or types
// the engine cannot hold, kUnsupported for an option that the engine does not have.
using EngineFunction = Result<EnginePlan> (*)(const EngineCase& engine_case);

struct Engine {
  std::string_view name;
  std::span<const std::string_view> profiles;  // newest first, never empty
  EngineFunction plan;
};

// All engines, in the order in which they are shown.
[[nodiscard]] std::span<const Engine> engines();

// For engines that do not size their pool by the memory: fills max_concurrency and tokens if the
// request states the memory. Requires: plan.bytes is set.
void set_concurrency(EnginePlan& plan, const PlanRequest& request);

// Which of the options that only some engines have an engine has; the others change nothing on it.
struct EngineTraits {
  std::string_view name;
  bool has_swa_full = false;
  bool has_unified = false;
  bool has_flash_attention = false;
  bool has_prefix_caching = false;
  bool has_block_size = false;
  bool has_micro_batch = false;
  bool has_squares = false;
  bool has_layer_types = false;
  // Its rows live in blocks of one sequence each, so that the memory holds whole blocks alone.
  bool counts_whole_blocks = false;
};

// Requires: an engine's name.
[[nodiscard]] const EngineTraits& engine_traits(std::string_view engine);

// Sentences about options of the request that only other engines have. plan() adds them to every
// engine's notes.
[[nodiscard]] std::vector<std::string> foreign_option_notes(const PlanRequest& request,
                                                            std::string_view engine);

// Defined in engines/<name>.cc.
extern const Engine kIdealEngine;
extern const Engine kKvartoEngine;
extern const Engine kLlamaCppEngine;
extern const Engine kIkLlamaCppEngine;
extern const Engine kOllamaEngine;
extern const Engine kVllmEngine;
extern const Engine kSglangEngine;
extern const Engine kTensorRtLlmEngine;

}  // namespace kvarto
