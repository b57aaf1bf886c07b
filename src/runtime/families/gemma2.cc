// Gemma 2: norms around every part, windows on every other layer, soft-caps on scores and logits,
// embeddings scaled by the root of the hidden size. Files of Hugging Face hold norms less 1, those
// of llama.cpp whole norms.

#include "runtime/families/all.h"

namespace kvarto {

const Family kGemma2Family{.name = "gemma2",
                           .model_type = "gemma2",
                           .gguf_architecture = "gemma2",
                           .activation = Activation::kGeluTanh,
                           .activation_name = "gelu_pytorch_tanh",
                           .rope = {},
                           .has_post_norms = true,
                           .has_attention_cap = true,
                           .has_final_cap = true,
                           .attention_cap = 50,
                           .final_cap = 30,
                           .is_head_tied = true,
                           .config_norm_offset = 1,
                           .is_embedding_scaled = true,
                           .query_scalar = 256,
                           .layers_of_hidden_scalar = 46};  // 27B

}  // namespace kvarto
