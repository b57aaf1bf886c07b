// Hybrids of attention and linear recurrences: gated DeltaNet (Qwen3-Next, Qwen3.5, Qwen3.8), KDA
// (Kimi-Linear, Kimi-K3, GLM-5.3) and lightning attention (MiniMax-Text-01).
//
// Keys and defaults: transformers, src/transformers/models/qwen3_next, qwen3_5, qwen3_5_moe,
// qwen4_exp, kimi_linear, glm5_next, minimax.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "spec/families/all.h"
#include "spec/families/layer_list.h"
#include "spec/families/shapes.h"

namespace kvarto {
namespace {

using Kinds = std::vector<LayerContent>;

constexpr std::array kLinearWords = {
    LayerWord{"full_attention", LayerContent::kAttention},
    LayerWord{"attention", LayerContent::kAttention},
    LayerWord{"deepseek_sparse_attention", LayerContent::kAttention},
    LayerWord{"qwen_sparse_attention", LayerContent::kAttention},
    LayerWord{"hybrid_indexed", LayerContent::kAttention},
    LayerWord{"linear_attention", LayerContent::kState},
};

// `layer_types`, else attention in every `interval`-th layer.
Result<Kinds> read_kinds(ClassKeys& read, std::int64_t num_layers, std::int64_t interval) {
  KVARTO_TRY(auto kinds, read_layer_words(read.keys(), "layer_types",
                                          static_cast<std::size_t>(num_layers), kLinearWords));
  if (kinds) return std::move(*kinds);
  KVARTO_TRY(const auto every, read.count({"full_attention_interval"}, interval, kMaxLayers));
  Kinds result;
  for (std::int64_t i = 0; i < num_layers; ++i) {
    result.push_back((i + 1) % every == 0 ? LayerContent::kAttention : LayerContent::kState);
  }
  return result;
}

std::vector<LayerSpec> arrange(const Kinds& kinds, const LayerSpec& attention,
                               const LayerSpec& state) {
  std::vector<LayerSpec> layers;
  for (LayerContent kind : kinds) {
    layers.push_back(kind == LayerContent::kAttention ? attention : state);
  }
  return layers;
}

Result<LayerSpec> read_delta_net(ClassKeys& read) {
  KVARTO_TRY(const auto k_heads, read.count({"linear_num_key_heads"}, 16, kMaxHeads));
  KVARTO_TRY(const auto v_heads, read.count({"linear_num_value_heads"}, 32, kMaxHeads));
  KVARTO_TRY(const auto k_dim, read.count({"linear_key_head_dim"}, 128, kMaxLinearDim));
  KVARTO_TRY(const auto v_dim, read.count({"linear_value_head_dim"}, 128, kMaxLinearDim));
  KVARTO_TRY(const auto kernel, read.count({"linear_conv_kernel_dim"}, 4, kMaxKernel));
  if (v_heads % k_heads != 0) {
    return read.keys().bad("linear_num_value_heads", fmt::format("{}", v_heads),
                           fmt::format("a multiple of linear_num_key_heads {}", k_heads));
  }
  StateShape shape;
  shape.architecture = "gdn";
  shape.query = {.q_heads = narrow(v_heads), .qk_dim = narrow(k_dim), .v_dim = narrow(v_dim)};
  shape.conv_rows = narrow(kernel - 1);
  if (kernel > 1) {
    shape.conv = {{"q", narrow(k_heads), narrow((kernel - 1) * k_dim)},
                  {"k", narrow(k_heads), narrow((kernel - 1) * k_dim)},
                  {"v", narrow(v_heads), narrow((kernel - 1) * v_dim)}};
  }
  shape.state = {{"state", narrow(v_heads), narrow(k_dim * v_dim)}};
  KVARTO_TRY(shape.state_codec, read_state_codec(read.keys()));
  shape.compact_state_codec = compact_codec(read.keys(), shape.state_codec);
  return state_layer(shape);
}

struct QwenDefaults {
  std::string_view config_class;
  std::int64_t layers, hidden;
  AttentionDefaults attention;
};

QwenDefaults qwen_defaults(const std::string& type) {
  if (type.starts_with("qwen3_5_moe")) {
    return {"Qwen3_5MoeTextConfig", 40, 2048, {16, 2, 256}};
  }
  if (type.starts_with("qwen3_5")) return {"Qwen3_5TextConfig", 32, 4096, {16, 4, 256}};
  if (type.starts_with("qwen4_exp")) return {"Qwen4ExpTextConfig", 40, 2048, {16, 2, 256}};
  return {"Qwen3NextConfig", 48, 2048, {16, 2, 256}};
}

// QSA: one index key for `indexer_compress_ratio` tokens; without its keys, plain attention.
Result<LayerSpec> read_qwen_attention(ClassKeys& read, std::int64_t hidden,
                                      const AttentionDefaults& defaults) {
  KVARTO_TRY(const DenseShape dense, read_attention(read, hidden, defaults));
  constexpr std::array<std::string_view, 5> kIndexerKeys = {"indexer_n_heads", "indexer_kv_heads",
                                                            "indexer_head_dim", "indexer_budget",
                                                            "indexer_compress_ratio"};
  if (std::none_of(kIndexerKeys.begin(), kIndexerKeys.end(),
                   [&](std::string_view key) { return read.keys().has(key); })) {
    return dense_layer(dense);
  }
  const Keys& keys = read.keys();
  KVARTO_TRY(const auto heads, keys.required_integer({"indexer_n_heads"}, 1, kMaxHeads));
  KVARTO_CHECK_OK(keys.required_integer({"indexer_kv_heads"}, 1, 1));
  KVARTO_TRY(const auto dim, keys.required_integer({"indexer_head_dim"}, 1, kMaxWidth));
  KVARTO_TRY(const auto budget, keys.required_integer({"indexer_budget"}, 1, kMaxTokens));
  KVARTO_TRY(const auto ratio, keys.required_integer({"indexer_compress_ratio"}, 1, kMaxWidth));
  if (budget % ratio != 0) {
    return keys.bad("indexer_budget", fmt::format("{}", budget),
                    fmt::format("a multiple of indexer_compress_ratio {}", ratio));
  }
  BlockSparseShape shape;
  shape.architecture = "qsa";
  shape.dense = dense;
  shape.summary = BlockSparseShape::Summary::kIndexKey;
  shape.block = static_cast<std::uint64_t>(ratio);
  shape.budget = static_cast<std::uint64_t>(budget);
  shape.index_heads = narrow(heads);
  shape.index_dim = narrow(dim);
  shape.index_pool = static_cast<std::uint64_t>(ratio);
  return block_sparse_layer(shape);
}

// The checkpoint's numbering from 1: each layer in exactly one of two lists.
Result<std::optional<Kinds>> read_kimi_lists(const Keys& linear, std::size_t num_layers) {
  KVARTO_TRY(const auto full, read_layer_numbers(linear, "full_attn_layers", num_layers, 1));
  KVARTO_TRY(const auto kda, read_layer_numbers(linear, "kda_layers", num_layers, 1));
  if (!full && !kda) return std::optional<Kinds>();
  if (!full) return linear.missing("full_attn_layers", "a list beside kda_layers");
  if (!kda) return linear.missing("kda_layers", "a list beside full_attn_layers");
  Kinds kinds(num_layers, LayerContent::kNone);
  for (std::uint32_t layer : *full) kinds[layer] = LayerContent::kAttention;
  for (std::uint32_t layer : *kda) {
    if (kinds[layer] != LayerContent::kNone) {
      return linear.bad("kda_layers", fmt::format("layer {}", layer + 1),
                        "no layer of full_attn_layers");
    }
    kinds[layer] = LayerContent::kState;
  }
  const auto open = std::find(kinds.begin(), kinds.end(), LayerContent::kNone);
  if (open != kinds.end()) {
    return linear.bad("kda_layers", fmt::format("no layer {}", open - kinds.begin() + 1),
                      "every layer here or in full_attn_layers");
  }
  return std::optional<Kinds>(std::move(kinds));
}

struct KdaDefaults {
  std::int64_t heads = 0;
};

// Heads, dim and kernel: a map of the checkpoint, or keys of their own.
Result<LayerSpec> read_kda(ClassKeys& read, const KdaDefaults& defaults) {
  const Keys& keys = read.keys();
  const auto linear = keys.child("linear_attn_config");
  if (!linear) {
    KVARTO_TRY(const auto heads, read.count({"linear_num_heads"}, defaults.heads, kMaxHeads));
    KVARTO_TRY(const auto dim, read.count({"linear_head_dim"}, 128, kMaxLinearDim));
    KVARTO_TRY(const auto kernel, read.count({"linear_conv_kernel_dim"}, 4, kMaxKernel));
    return kda_layer(keys, heads, dim, kernel);
  }
  KVARTO_TRY(const auto heads, linear->integer({"num_heads"}, 1, kMaxHeads));
  KVARTO_TRY(const auto dim, linear->integer({"head_dim"}, 1, kMaxLinearDim));
  KVARTO_TRY(const auto kernel, linear->integer({"short_conv_kernel_size"}, 1, kMaxKernel));
  if (!heads) read.note_default("linear_attn_config.num_heads", fmt::format("{}", defaults.heads));
  if (!dim) read.note_default("linear_attn_config.head_dim", "128");
  if (!kernel) read.note_default("linear_attn_config.short_conv_kernel_size", "4");
  return kda_layer(keys, heads.value_or(defaults.heads), dim.value_or(128), kernel.value_or(4));
}

}  // namespace

Result<ModelSpec> read_qwen_hybrid(const Keys& keys, const Keys& root) {
  const QwenDefaults defaults = qwen_defaults(effective_model_type(keys, root));
  ClassKeys read(keys, defaults.config_class);
  KVARTO_TRY(const auto num_layers, read.count({"num_hidden_layers"}, defaults.layers, kMaxLayers));
  KVARTO_TRY(const auto hidden, read.count({"hidden_size"}, defaults.hidden, kMaxWidth));
  KVARTO_TRY(const auto context, read.count({"max_position_embeddings"}, 32'768, kMaxTokens));
  KVARTO_TRY(const Kinds kinds, read_kinds(read, num_layers, 4));
  KVARTO_TRY(const LayerSpec attention, read_qwen_attention(read, hidden, defaults.attention));
  KVARTO_TRY(const LayerSpec state, read_delta_net(read));
  KVARTO_TRY(const auto drafts, read_num_drafts(keys));
  if (keys.has("ple_layer_ids")) {
    read.note("ple_layer_ids: the constant state of the n-gram embedding is not counted");
  }
  return read.model({num_layers, hidden, context}, arrange(kinds, attention, state),
                    std::vector<LayerSpec>(static_cast<std::size_t>(drafts), attention), root);
}

Result<ModelSpec> read_kimi_linear(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "KimiLinearConfig");
  KVARTO_TRY(const auto num_layers, read.count({"num_hidden_layers"}, 27, kMaxLayers));
  KVARTO_TRY(const auto hidden, read.count({"hidden_size"}, 2304, kMaxWidth));
  KVARTO_TRY(const auto context,
             read.count({"max_position_embeddings", "model_max_length"}, 1'048'576, kMaxTokens));
  KVARTO_TRY(const LatentShape latent, read_latent(read, hidden, {32, 512, 64, 128, 128}));
  KVARTO_TRY(const LayerSpec state, read_kda(read, {.heads = 32}));
  std::optional<Kinds> kinds;
  if (const auto linear = keys.child("linear_attn_config"); linear && !keys.has("layer_types")) {
    KVARTO_TRY(kinds, read_kimi_lists(*linear, static_cast<std::size_t>(num_layers)));
  }
  if (!kinds) {
    KVARTO_TRY(kinds, read_kinds(read, num_layers, 4));
  }
  KVARTO_TRY(const auto drafts, read_num_drafts(keys));
  const LayerSpec attention = mla_layer(latent);
  return read.model({num_layers, hidden, context}, arrange(*kinds, attention, state),
                    std::vector<LayerSpec>(static_cast<std::size_t>(drafts), attention), root);
}

Result<ModelSpec> read_glm5_next(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "Glm5NextTextConfig");
  KVARTO_TRY(const auto num_layers, read.count({"num_hidden_layers"}, 45, kMaxLayers));
  KVARTO_TRY(const auto hidden, read.count({"hidden_size"}, 4096, kMaxWidth));
  KVARTO_TRY(const auto context, read.optional_count({"max_position_embeddings"}, kMaxTokens));
  KVARTO_TRY(const LatentShape latent, read_latent(read, hidden, {64, 512, 0, 256, 256}));
  KVARTO_TRY(IndexerShape indexer, read_indexer(read, {32, 128, 2048}));
  KVARTO_TRY(const auto pool, read.count({"index_kpool"}, 16, kMaxWidth));
  indexer.pool = static_cast<std::uint64_t>(pool);
  if (indexer.top_k % indexer.pool != 0) {
    return keys.bad("index_topk", fmt::format("{}", indexer.top_k),
                    fmt::format("a multiple of index_kpool {}", pool));
  }
  KVARTO_TRY(const LayerSpec state, read_kda(read, {.heads = 64}));
  KVARTO_TRY(const Kinds kinds, read_kinds(read, num_layers, 4));
  KVARTO_TRY(const std::vector<bool> is_full, read_full_indexers(read, num_layers));
  KVARTO_TRY(const auto drafts, read_num_drafts(keys));
  std::vector<LayerSpec> layers;
  std::optional<std::uint32_t> last_full;
  for (std::uint32_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == LayerContent::kState) {
      layers.push_back(state);
      continue;
    }
    // Only attention layers choose: the first of them has nothing to share.
    IndexerShape own = indexer;
    if (is_full[i] || !last_full) {
      last_full = i;
    } else {
      own.selection_layer = last_full;
    }
    layers.push_back(dsa_layer(latent, own));
  }
  return read.model(
      {num_layers, hidden, context}, layers,
      std::vector<LayerSpec>(static_cast<std::size_t>(drafts), dsa_layer(latent, indexer)), root);
}

Result<ModelSpec> read_lightning(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "MiniMaxConfig");
  KVARTO_TRY(const auto num_layers, read.count({"num_hidden_layers"}, 32, kMaxLayers));
  KVARTO_TRY(const auto hidden, read.count({"hidden_size"}, 4096, kMaxWidth));
  KVARTO_TRY(const auto context, read.count({"max_position_embeddings"}, 131'072, kMaxTokens));
  KVARTO_TRY(const DenseShape dense, read_attention(read, hidden, {.heads = 32, .kv_heads = 8}));
  const auto count = static_cast<std::size_t>(num_layers);
  KVARTO_TRY(auto kinds, read_layer_words(keys, "layer_types", count, kLinearWords));
  if (!kinds) {
    KVARTO_TRY(const auto list, keys.integers("attn_type_list", 0, 1));
    if (list && list->size() != count) {
      return keys.bad("attn_type_list", fmt::format("{} entries", list->size()),
                      fmt::format("{}, one a layer", count));
    }
    // The class's default belongs to `minimax`; the older types always state the list.
    if (!list && effective_model_type(keys, root) != "minimax") {
      return keys.missing("attn_type_list", "a list of 0 (lightning) and 1 (attention)");
    }
    if (!list) read.note_default("layer_types", "attention in every second layer");
    kinds.emplace();
    for (std::size_t i = 0; i < count; ++i) {
      const bool is_attention = list ? (*list)[i] == 1 : i % 2 == 0;
      kinds->push_back(is_attention ? LayerContent::kAttention : LayerContent::kState);
    }
  }
  if (dense.qk_dim > kMaxLinearDim) {
    return keys.bad("head_dim", fmt::format("{}", dense.qk_dim),
                    fmt::format("at most {} with linear attention", kMaxLinearDim));
  }
  StateShape state;
  state.architecture = "lightning";
  state.query = {.q_heads = dense.q_heads, .qk_dim = dense.qk_dim, .v_dim = dense.v_dim};
  state.state = {{"state", dense.q_heads, dense.qk_dim * dense.v_dim}};
  KVARTO_TRY(state.state_codec, read_state_codec(keys));
  state.compact_state_codec = compact_codec(keys, state.state_codec);
  return read.model({num_layers, hidden, context},
                    arrange(*kinds, dense_layer(dense), state_layer(state)), {}, root);
}

}  // namespace kvarto
