// Gemma 3n and Gemma 4: two kinds of layers with their own heads, and last layers that read the
// rows of an earlier layer of their kind.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "spec/families/all.h"
#include "spec/families/dense_keys.h"

namespace kvarto {
namespace {

constexpr DenseType kGemma3n{"gemma3n_text",
                             "Gemma3nTextConfig",
                             35,
                             2048,
                             8,
                             2,
                             256,
                             32'768,
                             {WindowRule::Kind::kPattern, 512, 5}};
constexpr DenseType kGemma4{"gemma4_text",
                            "Gemma4TextConfig",
                            30,
                            2304,
                            8,
                            4,
                            256,
                            131'072,
                            {WindowRule::Kind::kPattern, 512, 6}};
constexpr std::int64_t kGemma3nSharedLayers = 15;   // num_kv_shared_layers of Gemma3nTextConfig
constexpr std::int64_t kGemma4GlobalHeadDim = 512;  // global_head_dim of Gemma4TextConfig

// The last `num_shared` layers read the last layer before them that has their kind.
Status share_rows(const Keys& keys, const std::vector<LayerKind>& kinds, std::int64_t num_shared,
                  std::vector<DenseShape>& shapes) {
  const auto first = static_cast<std::int64_t>(kinds.size()) - num_shared;
  for (std::size_t i = static_cast<std::size_t>(first); i < kinds.size(); ++i) {
    const auto begin = std::make_reverse_iterator(kinds.begin() + first);
    const auto owner = std::find(begin, kinds.rend(), kinds[i]);
    if (owner == kinds.rend()) {
      return keys.bad("num_kv_shared_layers", fmt::format("{}", num_shared),
                      fmt::format("a layer of the kind of layer {} before them", i));
    }
    const auto index = static_cast<std::size_t>(kinds.rend() - owner) - 1;
    shapes[i].owner_layer = static_cast<std::uint32_t>(index);
  }
  return {};
}

Result<ModelSpec> finish(ClassKeys& read, const DenseGeometry& geometry, const LayerKinds& kinds,
                         std::vector<DenseShape> shapes, const Keys& root) {
  std::vector<LayerSpec> layers;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (kinds.kinds[i] == LayerKind::kChunked) {
      return read.keys().bad("layer_types", "chunked_attention",
                             "full_attention or sliding_attention in this model type");
    }
    layers.push_back(dense_layer(with_kind(shapes[i], kinds.kinds[i], kinds.window)));
  }
  return read.model(geometry.frame, layers, {}, root);
}

Result<std::int64_t> read_num_shared(ClassKeys& read, std::int64_t class_default,
                                     std::int64_t num_layers) {
  const Keys& keys = read.keys();
  KVARTO_TRY(const auto stated, keys.integer({"num_kv_shared_layers"}, 0, num_layers));
  if (!stated && class_default != 0) {
    read.note_default("num_kv_shared_layers", fmt::format("{}", class_default));
  }
  const std::int64_t num_shared = stated.value_or(class_default);
  if (num_shared > 0 && num_shared >= num_layers) {
    return keys.bad("num_kv_shared_layers", fmt::format("{}", num_shared),
                    fmt::format("fewer than the {} layers", num_layers));
  }
  return num_shared;
}

}  // namespace

Result<ModelSpec> read_gemma3n_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kGemma3n.config_class);
  KVARTO_TRY(const DenseGeometry geometry, read_dense_geometry(read, kGemma3n));
  const std::int64_t num_layers = geometry.frame.num_layers;
  KVARTO_TRY(const LayerKinds kinds, read_layer_kinds(read, kGemma3n, geometry.frame));
  KVARTO_TRY(const std::int64_t num_shared,
             read_num_shared(read, kGemma3nSharedLayers, num_layers));
  std::vector<DenseShape> shapes(kinds.kinds.size(), geometry.shape);
  KVARTO_CHECK_OK(share_rows(keys, kinds.kinds, num_shared, shapes));
  return finish(read, geometry, kinds, std::move(shapes), root);
}

Result<ModelSpec> read_gemma4_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kGemma4.config_class);
  KVARTO_TRY(const DenseGeometry geometry, read_dense_geometry(read, kGemma4));
  const std::int64_t num_layers = geometry.frame.num_layers;
  KVARTO_TRY(LayerKinds kinds, read_layer_kinds(read, kGemma4, geometry.frame));
  if (kinds.kinds.back() == LayerKind::kSliding) {
    kinds.kinds.back() = LayerKind::kFull;
    read.note("layer_types: the last layer is sliding, took full, as Gemma4TextConfig forces it");
  }
  KVARTO_TRY(const std::int64_t global_dim,
             read.count({"global_head_dim"}, kGemma4GlobalHeadDim, kMaxWidth));
  KVARTO_TRY(const auto is_k_eq_v, keys.boolean("attention_k_eq_v"));
  KVARTO_TRY(const std::int64_t global_kv_heads,
             read.optional_count({"num_global_key_value_heads"}, kMaxHeads));
  DenseShape global = geometry.shape;
  global.qk_dim = global.v_dim = static_cast<std::uint32_t>(global_dim);
  if (is_k_eq_v.value_or(false)) {
    if (global_kv_heads != 0) global.kv_heads = static_cast<std::uint32_t>(global_kv_heads);
    read.note(
        "attention_k_eq_v: K and V of the global layers come from one projection; both are "
        "cached, since K carries RoPE and V does not");
  }
  if (global.q_heads % global.kv_heads != 0) {
    return keys.bad("num_global_key_value_heads", fmt::format("{}", global.kv_heads),
                    fmt::format("a divisor of the {} query heads", global.q_heads));
  }
  KVARTO_TRY(const std::int64_t num_shared, read_num_shared(read, 0, num_layers));
  std::vector<DenseShape> shapes;
  for (const LayerKind kind : kinds.kinds) {
    shapes.push_back(kind == LayerKind::kFull ? global : geometry.shape);
  }
  KVARTO_CHECK_OK(share_rows(keys, kinds.kinds, num_shared, shapes));
  return finish(read, geometry, kinds, std::move(shapes), root);
}

}  // namespace kvarto
