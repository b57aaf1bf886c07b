// Hunyuan-Large: cross-layer attention (CLA). Of every `cla_share_factor` adjacent layers the first
// owns K and V, the others read them.

#include <fmt/format.h>

#include "spec/families/all.h"
#include "spec/families/dense_keys.h"

namespace kvarto {
namespace {

// The class lives beside the weights; its defaults are Llama's.
constexpr DenseType kHunyuan{"hunyuan",     "HunYuanConfig", 32,   4096, 32,
                             kAsQueryHeads, kDerived,        2048, {}};

}  // namespace

Result<ModelSpec> read_hunyuan_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kHunyuan.config_class);
  KVARTO_TRY(const DenseGeometry geometry, read_dense_geometry(read, kHunyuan));
  KVARTO_TRY(const auto has_sharing, keys.boolean("use_cla"));
  std::int64_t factor = 1;
  if (has_sharing.value_or(false)) {
    KVARTO_TRY(factor, read.count({"cla_share_factor"}, 1, geometry.frame.num_layers));
  }
  std::vector<LayerSpec> layers;
  for (std::int64_t i = 0; i < geometry.frame.num_layers; ++i) {
    DenseShape shape = geometry.shape;
    if (i % factor != 0) shape.owner_layer = static_cast<std::uint32_t>(i - i % factor);
    layers.push_back(dense_layer(shape));
  }
  return read.model(geometry.frame, layers, {}, root);
}

}  // namespace kvarto
