// Engine `ik_llama.cpp`: full context for windowed layers, latent rows alone; without flash
// attention a transposed f16 copy of the latent beside them (its log calls it kv^T).

#include <array>

#include "plan/engines/llama_rules.h"

namespace kvarto {
namespace {

constexpr std::array<std::string_view, 2> kProfiles = {"2026-08", "2025-no-mla"};

Result<EnginePlan> plan_ik(const EngineCase& engine_case) {
  LlamaRules rules{.has_window_cache = false, .is_row_one_head = true};
  if (!engine_case.request.has_flash_attention) rules.latent = LatentForm::kRowAndTransposed;
  if (engine_case.profile == "2025-no-mla") rules.latent = LatentForm::kFullHeads;
  return plan_llama(engine_case, "ik_llama.cpp", rules);
}

}  // namespace

const Engine kIkLlamaCppEngine = {"ik_llama.cpp", kProfiles, &plan_ik};

}  // namespace kvarto
