// Cache types of some layers alone: K and V of each layer may have types of their own.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvarto/model_spec.h"
#include "kvarto/result.h"

namespace kvarto {

struct LayerTypes {
  std::vector<std::uint32_t> layers;
  CacheTypes types;
};

// with_types() for all layers, then with_layer_types() for those named, in order: of a layer that
// is named twice the last types hold. Errors: those of both.
[[nodiscard]] Result<ModelSpec> with_types(ModelSpec model, const CacheTypes& types,
                                           std::span<const LayerTypes> by_layer);

// The types of one layer: the last that name it, else `types`.
[[nodiscard]] const CacheTypes& types_of_layer(std::uint32_t layer, const CacheTypes& types,
                                               std::span<const LayerTypes> by_layer);

// What `by_layer` says of the layers of a model that has fewer of them.
[[nodiscard]] std::vector<LayerTypes> types_within(const ModelSpec& model,
                                                   std::span<const LayerTypes> by_layer);

}  // namespace kvarto
