// Gemma 3, text: norms around every part, windows on five of six layers with a rotation base of
// their own, embeddings scaled by the root of the hidden size. Files of Hugging Face hold norms
// less 1, those of llama.cpp whole norms.

#include <cmath>

#include "runtime/families/all.h"

namespace kvarto {
namespace {

// Of Gemma3TextConfig; every released model but 27B has it.
constexpr double kQueryPreAttnScalar = 256;
// Gemma 3 27B, which GGUF knows by its layers alone (llama.cpp, src/models/gemma3.cpp).
constexpr std::size_t kLayers27B = 62;

Status finish(const ModelSource& source, Decoder& decoder) {
  const Keys keys = source.keys();
  const DecoderLayer& first = decoder.layers.front();
  double scalar = first.head_dim;
  if (source.format() == FileFormat::kHuggingFace) {
    KVARTO_TRY(const auto stated, keys.real("query_pre_attn_scalar"));
    scalar = stated.value_or(kQueryPreAttnScalar);
    if (!(scalar > 0)) return keys.bad("query_pre_attn_scalar", "0 or less", "a number above 0");
    KVARTO_TRY(const auto is_bidirectional, keys.boolean("use_bidirectional_attention"));
    if (is_bidirectional.value_or(false)) {
      return fail(ErrorCode::kUnsupported,
                  keys.name("use_bidirectional_attention") +
                      ": found true, expected false: a model that embeds does not generate");
    }
  } else if (decoder.layers.size() == kLayers27B) {
    scalar = static_cast<double>(decoder.hidden_size) / first.q_heads;
  }
  decoder.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  return {};
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
                           .has_soft_caps = true,
                           .is_head_tied = true,
                           .config_norm_offset = 1,
                           .is_embedding_scaled = true,
                           .finish = finish};

}  // namespace kvarto
