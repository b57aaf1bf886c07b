#include "kvarto/layer_types.h"

#include <algorithm>

namespace kvarto {
namespace {

bool contains(std::span<const std::uint32_t> layers, std::uint32_t layer) {
  return std::find(layers.begin(), layers.end(), layer) != layers.end();
}

}  // namespace

Result<ModelSpec> with_types(ModelSpec model, const CacheTypes& types,
                             std::span<const LayerTypes> by_layer) {
  KVARTO_TRY(model, with_types(std::move(model), types));
  for (const LayerTypes& some : by_layer) {
    KVARTO_TRY(model, with_layer_types(std::move(model), some.types, some.layers));
  }
  return model;
}

const CacheTypes& types_of_layer(std::uint32_t layer, const CacheTypes& types,
                                 std::span<const LayerTypes> by_layer) {
  const CacheTypes* found = &types;
  for (const LayerTypes& some : by_layer) {
    if (contains(some.layers, layer)) found = &some.types;
  }
  return *found;
}

std::vector<LayerTypes> types_within(const ModelSpec& model, std::span<const LayerTypes> by_layer) {
  std::vector<LayerTypes> within;
  for (LayerTypes some : std::vector<LayerTypes>(by_layer.begin(), by_layer.end())) {
    std::erase_if(some.layers, [&](std::uint32_t layer) {
      return std::none_of(model.groups.begin(), model.groups.end(),
                          [&](const LayerGroup& group) { return contains(group.layers, layer); });
    });
    if (!some.layers.empty()) within.push_back(std::move(some));
  }
  return within;
}

}  // namespace kvarto
