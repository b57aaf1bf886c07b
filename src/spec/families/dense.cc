// Plain and windowed attention: one shape of heads for all layers.

#include <fmt/format.h>

#include "spec/families/all.h"
#include "spec/families/dense_keys.h"

namespace kvarto {

DenseShape with_kind(DenseShape shape, LayerKind kind, std::uint64_t window) {
  shape.window = kind == LayerKind::kSliding ? window : 0;
  return shape;
}

Result<std::vector<LayerSpec>> read_dense_drafts(const Keys& keys, const DenseShape& shape,
                                                 const LayerKinds& kinds) {
  KVARTO_TRY(const std::int64_t num_drafts, read_num_drafts(keys));
  std::vector<LayerSpec> drafts;
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_drafts); ++i) {
    const LayerKind kind = i < kinds.drafts.size() ? kinds.drafts[i] : LayerKind::kFull;
    drafts.push_back(dense_layer(with_kind(shape, kind, kinds.window)));
  }
  return drafts;
}

Result<ModelSpec> read_uniform_layers(ClassKeys& read, const DenseType& type,
                                      const DenseGeometry& geometry, const Keys& root) {
  const Keys& keys = read.keys();
  KVARTO_TRY(const LayerKinds kinds, read_layer_kinds(read, type, geometry.frame));
  KVARTO_TRY(const std::vector<LayerSpec> drafts, read_dense_drafts(keys, geometry.shape, kinds));
  std::vector<LayerSpec> layers;
  for (const LayerKind kind : kinds.kinds) {
    if (kind == LayerKind::kChunked) {
      return keys.bad("layer_types", "chunked_attention",
                      "full_attention or sliding_attention in this model type");
    }
    layers.push_back(dense_layer(with_kind(geometry.shape, kind, kinds.window)));
  }
  return read.model(geometry.frame, layers, drafts, root);
}

Result<ModelSpec> read_dense_family(const Keys& keys, const Keys& root) {
  const DenseType& type = dense_type(effective_model_type(keys, root));
  ClassKeys read(keys, type.config_class);
  KVARTO_TRY(const DenseGeometry geometry, read_dense_geometry(read, type));
  return read_uniform_layers(read, type, geometry, root);
}

}  // namespace kvarto
