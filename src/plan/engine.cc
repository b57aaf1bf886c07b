#include "plan/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace kvarto {
namespace {

constexpr std::array<EngineTraits, 8> kTraits = {{
    {.name = "ideal", .has_layer_types = true},
    {.name = "kvarto",
     .has_block_size = true,
     .has_micro_batch = true,
     .has_squares = true,
     .has_layer_types = true,
     .counts_whole_blocks = true},
    {.name = "llama.cpp",
     .has_swa_full = true,
     .has_unified = true,
     .has_flash_attention = true,
     .has_micro_batch = true},
    // Every windowed layer has the full context already.
    {.name = "ik_llama.cpp",
     .has_unified = true,
     .has_flash_attention = true,
     .has_micro_batch = true},
    {.name = "ollama",
     .has_swa_full = true,
     .has_unified = true,
     .has_flash_attention = true,
     .has_micro_batch = true},
    // Full windows are its hybrid manager turned off.
    {.name = "vllm",
     .has_swa_full = true,
     .has_prefix_caching = true,
     .has_block_size = true,
     .has_micro_batch = true},
    {.name = "sglang", .has_block_size = true},
    {.name = "tensorrt-llm", .has_block_size = true},
}};

}  // namespace

std::span<const Engine> engines() {
  // A function's static: the engines are defined in other files, whose order of initialisation is
  // open.
  static const std::array kEngines = {
      kIdealEngine,  kKvartoEngine, kLlamaCppEngine, kIkLlamaCppEngine,
      kOllamaEngine, kVllmEngine,   kSglangEngine,   kTensorRtLlmEngine,
  };
  return kEngines;
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const Engine& engine : engines()) names.emplace_back(engine.name);
  return names;
}

std::vector<std::string> engine_profiles(std::string_view name) {
  for (const Engine& engine : engines()) {
    if (engine.name == name) return {engine.profiles.begin(), engine.profiles.end()};
  }
  return {};
}

void set_concurrency(EnginePlan& plan, const PlanRequest& request) {
  if (request.kv_memory_bytes == 0 || plan.bytes == 0) return;
  const double bytes_per_sequence =
      static_cast<double>(plan.bytes) / static_cast<double>(request.num_sequences);
  plan.max_concurrency = static_cast<double>(request.kv_memory_bytes) / bytes_per_sequence;
  const double tokens = *plan.max_concurrency * static_cast<double>(request.context);
  constexpr double kMaxTokens = 9.2e18;  // below 2^63
  if (tokens < kMaxTokens) plan.tokens = static_cast<std::uint64_t>(tokens);
}

const EngineTraits& engine_traits(std::string_view engine) {
  const auto* found = std::find_if(kTraits.begin(), kTraits.end(),
                                   [&](const EngineTraits& t) { return t.name == engine; });
  KVARTO_CHECK(found != kTraits.end());
  return *found;
}

std::vector<std::string> foreign_option_notes(const PlanRequest& request, std::string_view engine) {
  std::vector<std::string> notes;
  const auto add = [&](std::string_view option) {
    notes.push_back(
        fmt::format("{} is not an option of engine {} and changes nothing here", option, engine));
  };
  const EngineTraits& traits = engine_traits(engine);
  if (request.is_swa_full && !traits.has_swa_full) add("swa-full");
  if (request.is_unified.value_or(false) && !traits.has_unified) add("kv-unified");
  if (!request.has_flash_attention && !traits.has_flash_attention) add("flash attention off");
  if (request.is_prefix_caching && !traits.has_prefix_caching) add("prefix caching");
  if (request.block_size != 0 && !traits.has_block_size) add("block size");
  if (request.micro_batch != 0 && !traits.has_micro_batch) add("micro-batch");
  if (request.keeps_squares && !traits.has_squares) add("arithmetic in f16");
  return notes;
}

}  // namespace kvarto
