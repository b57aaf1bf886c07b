#include "plan/engine.h"

#include <fmt/format.h>

#include <array>

namespace kvarto {

std::span<const Engine> engines() {
  // A function's static: the engines are defined in other files, whose order of initialisation is
  // open.
  static const std::array kEngines = {
      kIdealEngine,
      kKvartoEngine,
      kLlamaCppEngine,
      kIkLlamaCppEngine,
      kOllamaEngine,
      kVllmEngine,
      kSglangEngine,
      kTensorRtLlmEngine,
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

std::vector<std::string> foreign_option_notes(const PlanRequest& request, std::string_view engine) {
  std::vector<std::string> notes;
  const auto add = [&](std::string_view option) {
    notes.push_back(
        fmt::format("{} is not an option of engine {} and changes nothing here", option, engine));
  };
  if (request.is_swa_full) add("swa-full");
  if (request.is_unified) add("kv-unified");
  if (!request.has_flash_attention) add("flash attention off");
  if (request.is_prefix_caching) add("prefix caching");
  return notes;
}

}  // namespace kvarto
