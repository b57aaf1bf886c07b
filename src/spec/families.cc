#include "spec/families.h"

#include <algorithm>
#include <array>
#include <vector>

#include "spec/families/all.h"
#include "spec/families/class_keys.h"
#include "spec/families/dense_types.h"

namespace kvarto {
namespace {

// Types with a reader of their own, one a line, alphabetical. Types that differ from plain
// attention only in names and defaults of their keys stand in families/dense_types.cc.
constexpr std::array kFamilies = {
    Family{"bamba", read_bamba},
    Family{"chatglm", read_chatglm_family},
    Family{"dbrx", read_dbrx_family},
    Family{"deci", read_nemotron_nas_family},
    Family{"deepseek_v2", read_latent_family},
    Family{"deepseek_v3", read_latent_family},
    Family{"deepseek_v32", read_latent_family},
    Family{"deepseek_v4", read_deepseek_v4},
    Family{"deepseek_v41", read_deepseek_v41},
    Family{"deepseek_v41_text", read_deepseek_v41},
    Family{"falcon", read_falcon_family},
    Family{"falcon_h1", read_falcon_h1},
    Family{"falcon_mamba", read_mamba_family},
    Family{"gemma3n", read_gemma3n_family},
    Family{"gemma3n_text", read_gemma3n_family},
    Family{"gemma4", read_gemma4_family},
    Family{"gemma4_text", read_gemma4_family},
    Family{"glm4_moe_lite", read_latent_family},
    Family{"glm5_next", read_glm5_next},
    Family{"glm5_next_text", read_glm5_next},
    Family{"glm_moe_dsa", read_latent_family},
    Family{"gpt_bigcode", read_gpt_bigcode_family},
    Family{"gpt_neo", read_gpt_neo_family},
    Family{"granitemoehybrid", read_bamba},
    Family{"hunyuan", read_hunyuan_family},
    Family{"jamba", read_jamba},
    Family{"kimi_k2", read_latent_family},
    Family{"kimi_k25", read_latent_family},
    Family{"kimi_k3", read_kimi_linear},
    Family{"kimi_linear", read_kimi_linear},
    Family{"laguna", read_laguna_family},
    Family{"lfm2", read_lfm2},
    Family{"lfm2_moe", read_lfm2},
    Family{"llama4", read_llama4_family},
    Family{"llama4_text", read_llama4_family},
    Family{"longcat_flash", read_latent_family},
    Family{"mamba", read_mamba_family},
    Family{"mamba2", read_mamba2_family},
    Family{"mimo_v2_flash", read_mimo_family},
    Family{"minicpm3", read_latent_family},
    Family{"minimax", read_lightning},
    Family{"minimax_m1", read_lightning},
    Family{"minimax_m3", read_minimax_m3},
    Family{"minimax_m3_text", read_minimax_m3},
    Family{"minimax_m3_vl", read_minimax_m3},
    Family{"minimax_m3_vl_text", read_minimax_m3},
    Family{"minimax_text_01", read_lightning},
    Family{"mistral4", read_latent_family},
    Family{"mllama", read_mllama_family},
    Family{"mllama_text_model", read_mllama_family},
    Family{"mpt", read_mpt_family},
    Family{"nemotron-nas", read_nemotron_nas_family},
    Family{"nemotron_h", read_nemotron_h},
    Family{"openelm", read_openelm_family},
    Family{"qwen3_5", read_qwen_hybrid},
    Family{"qwen3_5_moe", read_qwen_hybrid},
    Family{"qwen3_5_moe_text", read_qwen_hybrid},
    Family{"qwen3_5_text", read_qwen_hybrid},
    Family{"qwen3_next", read_qwen_hybrid},
    Family{"qwen4_exp", read_qwen_hybrid},
    Family{"qwen4_exp_text", read_qwen_hybrid},
    Family{"rwkv", read_rwkv},
    Family{"step3p5", read_step3_family},
    Family{"step3p7", read_step3_family},
    Family{"zamba2", read_zamba2},
};

// The types above, and those of the dense table that none of them reads.
std::vector<Family> merged_families() {
  std::vector<Family> all(kFamilies.begin(), kFamilies.end());
  for (const DenseType& type : dense_types()) {
    const auto is_same = [&](const Family& f) { return f.model_type == type.model_type; };
    if (std::none_of(kFamilies.begin(), kFamilies.end(), is_same)) {
      all.push_back({type.model_type, read_dense_family});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Family& a, const Family& b) { return a.model_type < b.model_type; });
  return all;
}

// Where multimodal and speech models keep the description of their language model.
constexpr std::array<std::string_view, 8> kNestedKeys = {
    "text_config",    "llm_config",     "language_config", "language_model_config",
    "thinker_config", "language_model", "text_model",      "llm"};

Keys language_keys(Keys keys) {
  // Depth 3 is that of the deepest published config (thinker_config.text_config) and one more.
  for (int depth = 0; depth < 3; ++depth) {
    const auto nested =
        std::find_if(kNestedKeys.begin(), kNestedKeys.end(),
                     [&](std::string_view key) { return keys.child(key).has_value(); });
    if (nested == kNestedKeys.end()) break;
    keys = *keys.child(*nested);
  }
  return keys;
}

}  // namespace

std::span<const Family> families() {
  static const std::vector<Family> all = merged_families();
  return all;
}

Result<ModelSpec> read_model_keys(const Keys& root) {
  const Keys keys = language_keys(root);
  for (const Keys* map : {&keys, &root}) KVARTO_CHECK_OK(map->string("model_type"));
  const std::string type = effective_model_type(keys, root);
  const auto all = families();
  const auto family =
      std::lower_bound(all.begin(), all.end(), type,
                       [](const Family& f, std::string_view name) { return f.model_type < name; });
  const bool is_known = family != all.end() && family->model_type == type;
  return is_known ? family->read(keys, root) : read_unknown_family(keys, root);
}

}  // namespace kvarto
