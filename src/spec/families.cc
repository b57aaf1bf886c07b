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
    Family{"chatglm", read_chatglm_family},
    Family{"dbrx", read_dbrx_family},
    Family{"deci", read_nemotron_nas_family},
    Family{"falcon", read_falcon_family},
    Family{"gemma3n", read_gemma3n_family},
    Family{"gemma3n_text", read_gemma3n_family},
    Family{"gemma4", read_gemma4_family},
    Family{"gemma4_text", read_gemma4_family},
    Family{"gpt_bigcode", read_gpt_bigcode_family},
    Family{"gpt_neo", read_gpt_neo_family},
    Family{"hunyuan", read_hunyuan_family},
    Family{"laguna", read_laguna_family},
    Family{"llama4", read_llama4_family},
    Family{"llama4_text", read_llama4_family},
    Family{"mimo_v2_flash", read_mimo_family},
    Family{"mllama", read_mllama_family},
    Family{"mllama_text_model", read_mllama_family},
    Family{"mpt", read_mpt_family},
    Family{"nemotron-nas", read_nemotron_nas_family},
    Family{"openelm", read_openelm_family},
    Family{"step3p5", read_step3_family},
    Family{"step3p7", read_step3_family},
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
