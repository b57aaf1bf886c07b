#include "spec/families.h"

#include <algorithm>
#include <array>

#include "spec/families/all.h"
#include "spec/families/class_keys.h"

namespace kvarto {
namespace {

// Sorted by model type; one line a type. Types that differ from plain attention only in names and
// defaults of their keys stand in families/dense_types.cc instead.
constexpr std::array kFamilies = {
    Family{"llama", read_dense_family},
};

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

std::span<const Family> families() { return kFamilies; }

Result<ModelSpec> read_model_keys(const Keys& root) {
  const Keys keys = language_keys(root);
  const std::string type = effective_model_type(keys, root);
  const auto all = families();
  const auto family =
      std::find_if(all.begin(), all.end(), [&](const Family& f) { return f.model_type == type; });
  if (family != all.end()) return family->read(keys, root);
  return fail(ErrorCode::kUnsupported, root.where() + ": model_type: unknown");
}

}  // namespace kvarto
