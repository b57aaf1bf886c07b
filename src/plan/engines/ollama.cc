// Engine `ollama`: its llama-server runner (2026) allocates as llama.cpp does; its own engine
// (2025) sizes windowed caches without rounding. `--ctx-size` of the runner is slots times context,
// so every slot has the context asked for.

#include <array>

#include "plan/engines/llama_rules.h"

namespace kvarto {
namespace {

constexpr std::array<std::string_view, 2> kProfiles = {"2026", "2025"};

Result<EnginePlan> plan_ollama(const EngineCase& engine_case) {
  LlamaRules rules{.has_one_decimal = true};
  if (engine_case.profile == "2025") {
    rules.window_cell_multiple = 1;
    rules.has_sparse_caches = false;
  }
  return plan_llama(engine_case, "ollama", rules);
}

}  // namespace

const Engine kOllamaEngine = {"ollama", kProfiles, &plan_ollama};

}  // namespace kvarto
