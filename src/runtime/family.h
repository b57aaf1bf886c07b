// What tells the families of decoders apart. A family is one file in families/ and one line in
// decoder_families.cc.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/forward_kernels.h"
#include "kvarto/result.h"
#include "runtime/decoder.h"
#include "runtime/model_source.h"
#include "runtime/rope_reader.h"

namespace kvarto {

struct Family {
  std::string_view name;
  std::string_view model_type;         // of config.json
  std::string_view gguf_architecture;  // of GGUF
  Activation activation = Activation::kSilu;
  // Names under which `activation` stands in a config.json.
  std::string_view activation_name = "silu";
  RopeOrder gguf_rope = RopeOrder::kHalves;  // Hugging Face's files are always in halves
  RopeDefaults rope;
  double default_eps = 1e-6;    // rms_norm_eps of the config class
  bool has_qkv_bias = false;    // always; otherwise where `attention_bias` says so
  bool has_qk_norm = false;     // of each head, before rotation
  bool has_post_norms = false;  // behind attention and feed-forward, before the sums
  // Reads attn_logit_softcapping, final_logit_softcapping; what its config class takes for them.
  bool has_attention_cap = false;
  bool has_final_cap = false;
  double attention_cap = 0;
  double final_cap = 0;
  bool is_head_tied = false;         // where the configuration says nothing
  float config_norm_offset = 0;      // added to the norms of Hugging Face's files
  bool is_embedding_scaled = false;  // by the square root of the hidden size
  // Scores are divided by the root of query_pre_attn_scalar, which is this in the config class; 0:
  // by the root of the head dim.
  double query_scalar = 0;
  // GGUF has no such key; models of so many layers divide by the root of hidden size / heads.
  std::uint32_t layers_of_hidden_scalar = 0;
  // What only this family does, last; null: nothing.
  Status (*finish)(const ModelSource& source, Decoder& decoder) = nullptr;
};

[[nodiscard]] std::span<const Family* const> decoder_families();

// Errors: kUnsupported, naming the families that run.
[[nodiscard]] Result<const Family*> find_family(const ModelSource& source);

}  // namespace kvarto
