// Gemma 3, text: norms around every part, windows on five of six layers with a rotation base of
// their own, embeddings scaled by the root of the hidden size. Files of Hugging Face hold norms
// less 1, those of llama.cpp whole norms.

#include "runtime/families/all.h"

namespace kvarto {
namespace {

// The config class has keys of which the released models make no use.
Status refuse_unused(const ModelSource& source, Decoder&) {
  const Keys keys = source.keys();
  KVARTO_TRY(const auto is_bidirectional, keys.boolean("use_bidirectional_attention"));
  if (is_bidirectional.value_or(false)) {
    return fail(ErrorCode::kUnsupported,
                keys.name("use_bidirectional_attention") +
                    ": found true, expected false: a model that embeds does not generate");
  }
  KVARTO_TRY(const auto cap, keys.real("attn_logit_softcapping"));
  if (cap.value_or(0) == 0) return {};
  return fail(ErrorCode::kUnsupported,
              keys.name("attn_logit_softcapping") +
                  ": found a number, expected none: transformers and llama.cpp ignore it here");
}

}  // namespace

const Family kGemma3Family{.name = "gemma3",
                           .model_type = "gemma3_text",
                           .gguf_architecture = "gemma3",
                           .activation = Activation::kGeluTanh,
                           .activation_name = "gelu_pytorch_tanh",
                           .rope = {.base = 1'000'000, .window_base = 10'000},
                           .has_qk_norm = true,
                           .has_post_norms = true,
                           .has_final_cap = true,
                           .is_head_tied = true,
                           .config_norm_offset = 1,
                           .is_embedding_scaled = true,
                           .query_scalar = 256,
                           .layers_of_hidden_scalar = 62,  // 27B
                           .finish = refuse_unused};

}  // namespace kvarto
