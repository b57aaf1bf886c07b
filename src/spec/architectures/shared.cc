// Layers that read rows of another layer: CLA (arXiv 2405.12981) shares K and V inside groups of
// adjacent layers; in YOCO (arXiv 2405.05254) the upper half reads one K and V of its first layer.

#include "spec/architectures.h"

namespace kvarto {

std::vector<LayerSpec> cla_layers(const DenseShape& shape, std::uint32_t num_layers,
                                  std::uint32_t group) {
  std::vector<LayerSpec> layers;
  for (std::uint32_t i = 0; i < num_layers; ++i) {
    DenseShape dense = shape;
    if (i % group != 0) dense.owner_layer = i - i % group;
    layers.push_back(dense_layer(dense));
  }
  return layers;
}

std::vector<LayerSpec> yoco_layers(const DenseShape& shape, std::uint32_t num_layers) {
  const std::uint32_t owner = num_layers / 2;
  std::vector<LayerSpec> layers;
  for (std::uint32_t i = 0; i < num_layers; ++i) {
    DenseShape dense = shape;
    if (i >= owner) dense.window = 0;
    if (i > owner) dense.owner_layer = owner;
    layers.push_back(dense_layer(dense));
  }
  return layers;
}

}  // namespace kvarto
