#include "spec/architectures.h"
#include "spec/families/all.h"
#include "spec/families/class_keys.h"

namespace kvarto {

Result<ModelSpec> read_dense_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "LlamaConfig");
  KVARTO_TRY(const auto layers, read.count({"num_hidden_layers"}, 32, kMaxLayers));
  KVARTO_TRY(const auto hidden, read.count({"hidden_size"}, 4096, kMaxWidth));
  KVARTO_TRY(const auto heads, read.count({"num_attention_heads"}, 32, kMaxHeads));
  KVARTO_TRY(const auto kv_heads, read.optional_count({"num_key_value_heads"}, kMaxHeads));
  KVARTO_TRY(const auto head_dim, read.optional_count({"head_dim"}, kMaxWidth));
  KVARTO_TRY(const auto context, read.optional_count({"max_position_embeddings"}, kMaxTokens));
  DenseShape shape;
  shape.q_heads = static_cast<std::uint32_t>(heads);
  shape.kv_heads = static_cast<std::uint32_t>(kv_heads != 0 ? kv_heads : heads);
  shape.qk_dim = static_cast<std::uint32_t>(head_dim != 0 ? head_dim : hidden / heads);
  shape.v_dim = shape.qk_dim;
  const std::vector<LayerSpec> all(static_cast<std::size_t>(layers), dense_layer(shape));
  return read.model({layers, hidden, context}, all, {}, root);
}

}  // namespace kvarto
