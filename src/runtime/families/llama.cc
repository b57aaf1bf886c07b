// Llama 2 and 3. llama.cpp's converter reorders the rows of Q and K, so that pairs of neighbours
// turn; it also calls Mistral's files "llama".

#include "runtime/families/all.h"

namespace kvarto {
namespace {

// Mixtral has the same architecture in GGUF.
Status refuse_experts(const ModelSource& source, Decoder&) {
  if (source.format() != FileFormat::kGguf) return {};
  KVARTO_TRY(const auto experts, source.keys().integer({"expert_count"}, 0, kMaxWidth));
  if (experts.value_or(0) == 0) return {};
  return fail(ErrorCode::kUnsupported, source.keys().name("expert_count") + ": found " +
                                           std::to_string(*experts) +
                                           ", expected 0: experts do not run");
}

}  // namespace

const Family kLlamaFamily{.name = "llama",
                          .model_type = "llama",
                          .gguf_architecture = "llama",
                          .gguf_rope = RopeOrder::kPairs,
                          .rope = {},
                          .finish = refuse_experts};

}  // namespace kvarto
