// Families that give every layer its own heads: Nemotron-NAS (block_configs), DeciLM
// (num_key_value_heads_per_layer), OpenELM (num_query_heads, num_kv_heads) and Laguna
// (num_attention_heads_per_layer).

#include <fmt/format.h>

#include "spec/families/all.h"
#include "spec/families/dense_keys.h"

namespace kvarto {
namespace {

// DeciLM's configs live in the model repositories; their classes inherit Llama's defaults.
constexpr DenseType kDeci{"nemotron-nas", "LlamaConfig", 32,   4096, 32,
                          kOneForEach,    kDerived,      2048, {}};

Status check_length(const Keys& keys, std::string_view key, std::size_t found,
                    std::int64_t num_layers) {
  if (found == static_cast<std::size_t>(num_layers)) return {};
  return keys.bad(key, fmt::format("a list of {}", found),
                  fmt::format("one entry for each of {} layers", num_layers));
}

Result<DenseShape> with_kv_heads(const Keys& keys, std::string_view key, DenseShape shape,
                                 std::int64_t kv_heads) {
  shape.kv_heads = static_cast<std::uint32_t>(kv_heads);
  if (shape.q_heads % shape.kv_heads != 0) {
    return keys.bad(key, fmt::format("{}", kv_heads),
                    fmt::format("a divisor of the {} query heads", shape.q_heads));
  }
  return shape;
}

// One entry of block_configs: attention may be absent (no_op), replaced by a linear layer, or have
// `n_heads_in_group` query heads for each KV head.
Result<LayerSpec> read_block(const Keys& attention, DenseShape shape) {
  KVARTO_TRY(const auto is_no_op, attention.boolean("no_op"));
  KVARTO_TRY(const auto is_linear, attention.boolean("replace_with_linear"));
  if (is_no_op.value_or(false) || is_linear.value_or(false)) return LayerSpec{};
  KVARTO_TRY(const std::int64_t group,
             attention.required_integer({"n_heads_in_group"}, 1, kMaxHeads));
  if (shape.q_heads % group != 0) {
    return attention.bad("n_heads_in_group", fmt::format("{}", group),
                         fmt::format("a divisor of the {} query heads", shape.q_heads));
  }
  shape.kv_heads = static_cast<std::uint32_t>(shape.q_heads / group);
  KVARTO_TRY(const auto window, attention.integer({"window_length"}, 1, kMaxTokens));
  shape.window = static_cast<std::uint64_t>(window.value_or(0));
  return dense_layer(shape);
}

Result<std::vector<LayerSpec>> read_blocks(const Keys& keys, const DenseGeometry& geometry) {
  const Value* value = keys.find("block_configs");
  const auto* blocks = std::get_if<ValueList>(&value->data);
  if (blocks == nullptr) return keys.bad("block_configs", describe(*value), "a list of blocks");
  KVARTO_CHECK_OK(check_length(keys, "block_configs", blocks->size(), geometry.frame.num_layers));
  std::vector<LayerSpec> layers;
  for (std::size_t i = 0; i < blocks->size(); ++i) {
    const std::string name = fmt::format("block_configs[{}].", i);
    const Keys block((*blocks)[i], keys.where(), name);
    const auto attention = block.child("attention");
    if (!attention) return block.missing("attention", "a map that describes the block's heads");
    KVARTO_TRY(LayerSpec layer, read_block(*attention, geometry.shape));
    layers.push_back(std::move(layer));
  }
  return layers;
}

Result<std::vector<LayerSpec>> read_kv_heads_list(const Keys& keys, std::string_view key,
                                                  const DenseGeometry& geometry) {
  KVARTO_TRY(const auto list, keys.integers(key, 1, kMaxHeads));
  if (!list) return keys.missing(key, "a list with one entry a layer");
  KVARTO_CHECK_OK(check_length(keys, key, list->size(), geometry.frame.num_layers));
  std::vector<LayerSpec> layers;
  for (const std::int64_t kv_heads : *list) {
    KVARTO_TRY(const DenseShape shape, with_kv_heads(keys, key, geometry.shape, kv_heads));
    layers.push_back(dense_layer(shape));
  }
  return layers;
}

}  // namespace

Result<ModelSpec> read_nemotron_nas_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kDeci.config_class);
  KVARTO_TRY(const DenseGeometry geometry, read_dense_geometry(read, kDeci));
  std::vector<LayerSpec> layers;
  if (keys.has("block_configs")) {
    KVARTO_TRY(layers, read_blocks(keys, geometry));
  } else if (keys.has("num_key_value_heads_per_layer")) {
    KVARTO_TRY(layers, read_kv_heads_list(keys, "num_key_value_heads_per_layer", geometry));
  } else if (keys.has("num_key_value_heads")) {
    return read_uniform_layers(read, kDeci, geometry, root);
  } else {
    return keys.missing("block_configs", "the heads of every block");
  }
  return read.model(geometry.frame, layers, {}, root);
}

Result<ModelSpec> read_openelm_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "");
  ClassKeys::Frame frame;
  KVARTO_TRY(frame.num_layers, read.count({"num_transformer_layers"}, 0, kMaxLayers));
  KVARTO_TRY(frame.hidden_size, read.optional_count({"model_dim"}, kMaxWidth));
  KVARTO_TRY(frame.max_context, read.optional_count({"max_context_length"}, kMaxTokens));
  KVARTO_TRY(const std::int64_t head_dim, read.count({"head_dim"}, 0, kMaxWidth));
  KVARTO_TRY(const auto heads, keys.integers("num_query_heads", 1, kMaxHeads));
  KVARTO_TRY(const auto kv_heads, keys.integers("num_kv_heads", 1, kMaxHeads));
  if (!heads) return keys.missing("num_query_heads", "a list with one entry a layer");
  if (!kv_heads) return keys.missing("num_kv_heads", "a list with one entry a layer");
  KVARTO_CHECK_OK(check_length(keys, "num_query_heads", heads->size(), frame.num_layers));
  KVARTO_CHECK_OK(check_length(keys, "num_kv_heads", kv_heads->size(), frame.num_layers));
  std::vector<LayerSpec> layers;
  for (std::size_t i = 0; i < heads->size(); ++i) {
    DenseShape shape;
    shape.q_heads = static_cast<std::uint32_t>((*heads)[i]);
    shape.qk_dim = shape.v_dim = static_cast<std::uint32_t>(head_dim);
    KVARTO_TRY(shape, with_kv_heads(keys, "num_kv_heads", shape, (*kv_heads)[i]));
    layers.push_back(dense_layer(shape));
  }
  return read.model(frame, layers, {}, root);
}

// Query heads differ by layer; KV heads are the same in all.
Result<ModelSpec> read_laguna_family(const Keys& keys, const Keys& root) {
  const DenseType& type = dense_type("laguna");
  ClassKeys read(keys, type.config_class);
  KVARTO_TRY(const DenseGeometry geometry, read_dense_geometry(read, type));
  KVARTO_TRY(const auto heads, keys.integers("num_attention_heads_per_layer", 1, kMaxHeads));
  if (!heads) return read_uniform_layers(read, type, geometry, root);
  const std::int64_t num_layers = geometry.frame.num_layers;
  KVARTO_CHECK_OK(check_length(keys, "num_attention_heads_per_layer", heads->size(), num_layers));
  KVARTO_TRY(const LayerKinds kinds, read_layer_kinds(read, type, geometry.frame));
  std::vector<LayerSpec> layers;
  for (std::size_t i = 0; i < heads->size(); ++i) {
    DenseShape shape = with_kind(geometry.shape, kinds.kinds[i], kinds.window);
    shape.q_heads = static_cast<std::uint32_t>((*heads)[i]);
    KVARTO_TRY(shape, with_kv_heads(keys, "num_key_value_heads", shape, shape.kv_heads));
    layers.push_back(dense_layer(shape));
  }
  return read.model(geometry.frame, layers, {}, root);
}

}  // namespace kvarto
