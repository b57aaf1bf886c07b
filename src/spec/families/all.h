// The readers of all families; listed in families.cc.

#pragma once

#include "kvarto/model_spec.h"
#include "spec/keys.h"

namespace kvarto {

// dense.cc: every type of the table in dense_types.cc.
[[nodiscard]] Result<ModelSpec> read_dense_family(const Keys& keys, const Keys& root);

// gemma.cc
[[nodiscard]] Result<ModelSpec> read_gemma3n_family(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_gemma4_family(const Keys& keys, const Keys& root);

// gpt_neo.cc
[[nodiscard]] Result<ModelSpec> read_gpt_neo_family(const Keys& keys, const Keys& root);

// hunyuan.cc
[[nodiscard]] Result<ModelSpec> read_hunyuan_family(const Keys& keys, const Keys& root);

// llama4.cc
[[nodiscard]] Result<ModelSpec> read_llama4_family(const Keys& keys, const Keys& root);

// mllama.cc
[[nodiscard]] Result<ModelSpec> read_mllama_family(const Keys& keys, const Keys& root);

// multi_query.cc
[[nodiscard]] Result<ModelSpec> read_chatglm_family(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_dbrx_family(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_falcon_family(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_gpt_bigcode_family(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_mpt_family(const Keys& keys, const Keys& root);

// per_layer.cc
[[nodiscard]] Result<ModelSpec> read_laguna_family(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_nemotron_nas_family(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_openelm_family(const Keys& keys, const Keys& root);

// two_shapes.cc
[[nodiscard]] Result<ModelSpec> read_mimo_family(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_step3_family(const Keys& keys, const Keys& root);

// compressed.cc, compressed_shared.cc
[[nodiscard]] Result<ModelSpec> read_deepseek_v4(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_deepseek_v41(const Keys& keys, const Keys& root);

// latent.cc: DeepSeek-V2, V3, V3.2 and their relatives.
[[nodiscard]] Result<ModelSpec> read_latent_family(const Keys& keys, const Keys& root);

// linear.cc: hybrids with gated DeltaNet, KDA or lightning attention.
[[nodiscard]] Result<ModelSpec> read_glm5_next(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_kimi_linear(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_lightning(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_qwen_hybrid(const Keys& keys, const Keys& root);

// mamba.cc: Mamba and its hybrids with attention.
[[nodiscard]] Result<ModelSpec> read_bamba(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_falcon_h1(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_jamba(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_mamba2_family(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_mamba_family(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_nemotron_h(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_zamba2(const Keys& keys, const Keys& root);

// other_hybrids.cc
[[nodiscard]] Result<ModelSpec> read_lfm2(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_minimax_m3(const Keys& keys, const Keys& root);
[[nodiscard]] Result<ModelSpec> read_rwkv(const Keys& keys, const Keys& root);

// unknown.cc: a type that none of the above is. Sets `is_unknown_type` and says what was assumed.
[[nodiscard]] Result<ModelSpec> read_unknown_family(const Keys& keys, const Keys& root);

}  // namespace kvarto
