// LFM2 (short convolutions beside attention), MiniMax-M3 (block-sparse attention with index keys)
// and RWKV-4.
//
// Keys and defaults: transformers, src/transformers/models/lfm2, lfm2_moe, rwkv; for MiniMax-M3 the
// published `sparse_attention_config` and the flat keys that newer files have instead.

#include <fmt/format.h>

#include <array>

#include "spec/families/all.h"
#include "spec/families/layer_list.h"
#include "spec/families/shapes.h"

namespace kvarto {
namespace {

using Kinds = std::vector<LayerContent>;

constexpr std::array kConvWords = {LayerWord{"conv", LayerContent::kState},
                                   LayerWord{"short_conv", LayerContent::kState},
                                   LayerWord{"full_attention", LayerContent::kAttention},
                                   LayerWord{"attention", LayerContent::kAttention}};
constexpr std::array kSparseWords = {LayerWord{"full_attention", LayerContent::kAttention},
                                     LayerWord{"minimax_m3_sparse", LayerContent::kSparse}};

// The sparse layers of MiniMax-M3 and the shape of their selection.
struct SparseKeys {
  Kinds kinds;
  std::vector<bool> has_index_value;
  std::int64_t heads = 4;
  std::int64_t dim = 128;
  std::int64_t block = 128;
  std::int64_t blocks = 16;
};

Result<std::optional<std::vector<std::int64_t>>> read_flags(const Keys& keys, std::string_view key,
                                                            std::size_t count) {
  KVARTO_TRY(auto flags, keys.integers(key, 0, 1));
  if (flags && flags->size() != count) {
    return keys.bad(key, fmt::format("{} entries", flags->size()),
                    fmt::format("{}, one a layer", count));
  }
  return flags;
}

Result<std::int64_t> read_sparse_count(ClassKeys& read, const std::optional<Keys>& map,
                                       std::string_view nested, std::string_view flat,
                                       std::int64_t class_default) {
  if (map) {
    KVARTO_TRY(const auto number, map->integer({nested}, 1, kMaxWidth));
    if (number) return *number;
  }
  return read.count({flat}, class_default, kMaxWidth);
}

Result<SparseKeys> read_sparse(ClassKeys& read, std::size_t count) {
  const Keys& keys = read.keys();
  SparseKeys sparse;
  sparse.has_index_value.assign(count, false);
  std::optional<Keys> map = keys.child("sparse_attention_config");
  if (map) {
    KVARTO_TRY(const auto is_used, map->boolean("use_sparse_attention"));
    if (!is_used.value_or(true)) {
      sparse.kinds.assign(count, LayerContent::kAttention);
      return sparse;
    }
  }
  KVARTO_TRY(auto kinds, read_layer_words(keys, "layer_types", count, kSparseWords));
  if (kinds) {
    sparse.kinds = std::move(*kinds);
  } else {
    const Keys& where = map ? *map : keys;
    KVARTO_TRY(const auto flags, read_flags(where, "sparse_attention_freq", count));
    if (!flags) return where.missing("sparse_attention_freq", "a list of 0 and 1, one a layer");
    for (std::int64_t flag : *flags) {
      sparse.kinds.push_back(flag == 1 ? LayerContent::kSparse : LayerContent::kAttention);
    }
  }
  if (map) {
    KVARTO_TRY(const auto off, read_flags(*map, "sparse_disable_index_value", count));
    for (std::size_t i = 0; off && i < count; ++i) sparse.has_index_value[i] = (*off)[i] == 0;
  }
  KVARTO_TRY(sparse.heads,
             read_sparse_count(read, map, "sparse_num_index_heads", "index_n_heads", 4));
  KVARTO_TRY(sparse.dim, read_sparse_count(read, map, "sparse_index_dim", "index_head_dim", 128));
  KVARTO_TRY(sparse.block,
             read_sparse_count(read, map, "sparse_block_size", "index_block_size", 128));
  KVARTO_TRY(sparse.blocks,
             read_sparse_count(read, map, "sparse_topk_blocks", "index_topk_blocks", 16));
  return sparse;
}

}  // namespace

Result<ModelSpec> read_minimax_m3(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "MiniMaxM3Config");
  KVARTO_TRY(const auto num_layers, read.count({"num_hidden_layers"}, 60, kMaxLayers));
  KVARTO_TRY(const auto hidden, read.count({"hidden_size"}, 6144, kMaxWidth));
  KVARTO_TRY(const auto context, read.count({"max_position_embeddings"}, 1'048'576, kMaxTokens));
  KVARTO_TRY(const DenseShape dense,
             read_attention(read, hidden, {.heads = 64, .kv_heads = 4, .head_dim = 128}));
  KVARTO_TRY(const SparseKeys sparse, read_sparse(read, static_cast<std::size_t>(num_layers)));
  BlockSparseShape shape;
  shape.dense = dense;
  shape.summary = BlockSparseShape::Summary::kIndexKey;
  shape.block = static_cast<std::uint64_t>(sparse.block);
  shape.budget = static_cast<std::uint64_t>(sparse.block * sparse.blocks);
  shape.index_heads = narrow(sparse.heads);
  shape.index_dim = narrow(sparse.dim);
  std::vector<LayerSpec> layers;
  for (std::size_t i = 0; i < sparse.kinds.size(); ++i) {
    shape.has_index_value = sparse.has_index_value[i];
    layers.push_back(sparse.kinds[i] == LayerContent::kSparse ? block_sparse_layer(shape)
                                                              : dense_layer(dense));
  }
  KVARTO_TRY(const auto drafts, read_num_drafts(keys));
  return read.model({num_layers, hidden, context}, layers,
                    std::vector<LayerSpec>(static_cast<std::size_t>(drafts), dense_layer(dense)),
                    root);
}

Result<ModelSpec> read_lfm2(const Keys& keys, const Keys& root) {
  const bool is_moe = effective_model_type(keys, root) == "lfm2_moe";
  ClassKeys read(keys, is_moe ? "Lfm2MoeConfig" : "Lfm2Config");
  KVARTO_TRY(const auto num_layers, read.count({"num_hidden_layers"}, 32, kMaxLayers));
  KVARTO_TRY(const auto hidden, read.count({"hidden_size"}, is_moe ? 2048 : 2560, kMaxWidth));
  KVARTO_TRY(const auto context, read.count({"max_position_embeddings"}, 128'000, kMaxTokens));
  KVARTO_TRY(const DenseShape dense, read_attention(read, hidden, {.heads = 32, .kv_heads = 8}));
  KVARTO_TRY(const auto cached, read.count({"conv_L_cache"}, 3, kMaxKernel));
  const auto count = static_cast<std::size_t>(num_layers);
  KVARTO_TRY(auto kinds, read_layer_words(keys, "layer_types", count, kConvWords));
  if (!kinds) {
    KVARTO_TRY(const auto attention, read_layer_numbers(keys, "full_attn_idxs", count, 0));
    if (!attention) read.note_default("full_attn_idxs", "attention in every layer");
    kinds.emplace(count, attention ? LayerContent::kState : LayerContent::kAttention);
    if (attention) {
      for (std::uint32_t layer : *attention) (*kinds)[layer] = LayerContent::kAttention;
    }
  }
  // A gated convolution over conv_L_cache tokens keeps all of them but the newest.
  StateShape state;
  state.architecture = "short_conv";
  if (cached > 1) state.conv = {{"x", narrow(hidden), narrow(cached - 1)}};
  state.conv_rows = narrow(cached - 1);
  std::vector<LayerSpec> layers;
  for (LayerContent kind : *kinds) {
    layers.push_back(kind == LayerContent::kAttention ? dense_layer(dense) : state_layer(state));
  }
  return read.model({num_layers, hidden, context}, layers, {}, root);
}

// Two shifted inputs (attention, feed-forward) and the numerator, denominator and maximum of the
// running weighted mean; f32 throughout, as the reference keeps them.
Result<ModelSpec> read_rwkv(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "RwkvConfig");
  KVARTO_TRY(const auto num_layers, read.count({"num_hidden_layers"}, 32, kMaxLayers));
  KVARTO_TRY(const auto hidden, read.count({"hidden_size"}, 4096, kMaxWidth));
  KVARTO_TRY(const auto context, read.count({"context_length"}, 1024, kMaxTokens));
  KVARTO_TRY(auto inner, read.optional_count({"attention_hidden_size"}, kMaxWidth));
  if (inner == 0) inner = hidden;
  StateShape state;
  state.architecture = "rwkv";
  state.conv = {{"shift", narrow(hidden), 2}};
  state.conv_codec = Codec::kF32;
  state.state = {{"mean", narrow(inner), 3}};
  return read.model(
      {num_layers, hidden, context},
      std::vector<LayerSpec>(static_cast<std::size_t>(num_layers), state_layer(state)), {}, root);
}

}  // namespace kvarto
