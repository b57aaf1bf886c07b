// Engine `llama.cpp`, by version: 2026 (two caches for windows, MLA rows alone, index caches),
// 2025-05 (the first MLA release: K 576 and V 512), 2024 (no MLA, windows get every cell), 2023
// (cells exactly as asked).

#include <array>

#include "plan/engines/llama_rules.h"

namespace kvarto {
namespace {

constexpr std::array<std::string_view, 4> kProfiles = {"2026", "2025-05", "2024", "2023"};

LlamaRules rules_of(std::string_view profile) {
  if (profile == "2025-05") {
    return {.latent = LatentForm::kRowAndValue, .has_sparse_caches = false};
  }
  if (profile == "2024") {
    return {
        .has_window_cache = false, .latent = LatentForm::kFullHeads, .has_sparse_caches = false};
  }
  if (profile == "2023") {
    return {.cell_multiple = 1,
            .has_window_cache = false,
            .latent = LatentForm::kFullHeads,
            .has_sparse_caches = false};
  }
  return {};
}

Result<EnginePlan> plan_llama_cpp(const EngineCase& engine_case) {
  LlamaRules rules = rules_of(engine_case.profile);
  // 2024 padded to 256 cells for flash attention, to 32 without it.
  if (engine_case.profile == "2024" && !engine_case.request.has_flash_attention) {
    rules.cell_multiple = 32;
  }
  return plan_llama(engine_case, "llama.cpp", rules);
}

}  // namespace

const Engine kLlamaCppEngine = {"llama.cpp", kProfiles, &plan_llama_cpp};

}  // namespace kvarto
