// Families whose number of KV heads hides behind a flag or in a nested map: Falcon, GPT-BigCode,
// MPT, DBRX, ChatGLM.

#include <fmt/format.h>

#include "spec/families/all.h"
#include "spec/families/dense_keys.h"

namespace kvarto {
namespace {

constexpr DenseType kFalcon{"falcon",    "FalconConfig", 32,   4544, 71,
                            kOneForEach, kDerived,       2048, {}};
constexpr DenseType kBigCode{"gpt_bigcode", "GPTBigCodeConfig", 12,   768, 12,
                             kOneForEach,   kDerived,           1024, {}};
constexpr DenseType kMpt{"mpt", "MptConfig", 24, 2048, 16, kOneForEach, kDerived, 2048, {}};
constexpr DenseType kDbrx{"dbrx", "DbrxConfig", 24, 2048, 16, kOneForEach, kDerived, 2048, {}};
constexpr DenseType kChatGlm{"chatglm",   "ChatGLMConfig", 28,   4096, 32,
                             kOneForEach, kDerived,        2048, {}};

// A model of one shape whose KV heads are `kv_heads`; 0 = one for each query head.
Result<ModelSpec> with_kv_heads(ClassKeys& read, const DenseType& type, std::int64_t kv_heads,
                                const Keys& root) {
  KVARTO_TRY(DenseGeometry geometry, read_dense_geometry(read, type));
  DenseShape& shape = geometry.shape;
  shape.kv_heads = kv_heads != 0 ? static_cast<std::uint32_t>(kv_heads) : shape.q_heads;
  if (shape.q_heads % shape.kv_heads != 0) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: KV heads: found {}, expected a divisor of the {} query heads",
                            read.keys().where(), shape.kv_heads, shape.q_heads));
  }
  return read_uniform_layers(read, type, geometry, root);
}

}  // namespace

// New architecture (40B, 180B): num_kv_heads. Old (7B): one head, unless multi_query is off.
Result<ModelSpec> read_falcon_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kFalcon.config_class);
  KVARTO_TRY(const auto is_new, keys.boolean("new_decoder_architecture"));
  if (is_new.value_or(false)) {
    KVARTO_TRY(
        const std::int64_t kv_heads,
        read.optional_count({"num_kv_heads", "n_head_kv", "num_key_value_heads"}, kMaxHeads));
    return with_kv_heads(read, kFalcon, kv_heads, root);
  }
  KVARTO_TRY(const auto is_multi_query, keys.boolean("multi_query"));
  if (!is_multi_query) read.note_default("multi_query", "true");
  return with_kv_heads(read, kFalcon, is_multi_query.value_or(true) ? 1 : 0, root);
}

Result<ModelSpec> read_gpt_bigcode_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kBigCode.config_class);
  KVARTO_TRY(const auto is_multi_query, keys.boolean("multi_query"));
  if (!is_multi_query) read.note_default("multi_query", "true");
  return with_kv_heads(read, kBigCode, is_multi_query.value_or(true) ? 1 : 0, root);
}

Result<ModelSpec> read_mpt_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kMpt.config_class);
  const auto attention = keys.child("attn_config");
  std::int64_t kv_heads = 0;
  if (attention) {
    KVARTO_TRY(const auto kind, attention->string("attn_type"));
    const std::string word = kind.value_or("multihead_attention");
    if (word == "multiquery_attention") {
      kv_heads = 1;
    } else if (word == "grouped_query_attention") {
      KVARTO_TRY(kv_heads, attention->required_integer({"kv_n_heads"}, 1, kMaxHeads));
    } else if (word != "multihead_attention") {
      return attention->bad("attn_type", fmt::format("\"{}\"", word.substr(0, 40)),
                            "multihead_attention, multiquery_attention or "
                            "grouped_query_attention");
    }
  }
  return with_kv_heads(read, kMpt, kv_heads, root);
}

Result<ModelSpec> read_dbrx_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kDbrx.config_class);
  std::int64_t kv_heads = 0;
  if (const auto attention = keys.child("attn_config")) {
    KVARTO_TRY(const auto stated, attention->integer({"kv_n_heads"}, 1, kMaxHeads));
    kv_heads = stated.value_or(0);
  }
  if (kv_heads == 0) {
    read.note_default("attn_config.kv_n_heads", "1");
    kv_heads = 1;
  }
  return with_kv_heads(read, kDbrx, kv_heads, root);
}

// ChatGLM2, ChatGLM3, GLM-4-9B: multi_query_group_num heads; ChatGLM-6B: one for each query head.
Result<ModelSpec> read_chatglm_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kChatGlm.config_class);
  KVARTO_TRY(const auto is_grouped, keys.boolean("multi_query_attention"));
  std::int64_t kv_heads = 0;
  if (is_grouped.value_or(false)) {
    KVARTO_TRY(kv_heads, read.count({"multi_query_group_num"}, 1, kMaxHeads));
  }
  return with_kv_heads(read, kChatGlm, kv_heads, root);
}

}  // namespace kvarto
