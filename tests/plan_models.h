// Small models for the planner's tests.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kvarto/model_spec.h"
#include "spec/architectures.h"

namespace kvarto::test {

inline ModelSpec model_of(const std::vector<LayerSpec>& layers, std::uint64_t max_context = 0) {
  ModelSpec model;
  model.name = "test";
  model.num_layers = static_cast<std::uint32_t>(layers.size());
  model.max_context = max_context;
  model.groups = group_layers(layers);
  return model;
}

inline ModelSpec uniform_model(const LayerSpec& layer, std::uint32_t num_layers,
                               std::uint64_t max_context = 0) {
  return model_of(std::vector<LayerSpec>(num_layers, layer), max_context);
}

// Heads and layers of one dense model.
struct DenseModel {
  std::uint32_t layers = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
};

inline LayerSpec dense(const DenseModel& shape, std::uint64_t window = 0) {
  return dense_layer({.q_heads = shape.q_heads,
                      .kv_heads = shape.kv_heads,
                      .qk_dim = shape.head_dim,
                      .v_dim = shape.head_dim,
                      .window = window});
}

inline ModelSpec dense_model(const DenseModel& shape) {
  return uniform_model(dense(shape), shape.layers);
}

// Published geometries: config.json of the models.
inline constexpr DenseModel kLlama2_7B{32, 32, 32, 128};
inline constexpr DenseModel kLlama31_8B{32, 32, 8, 128};
inline constexpr DenseModel kLlama31_405B{126, 128, 8, 128};
inline constexpr DenseModel kQwen25_72B{80, 64, 8, 128};

}  // namespace kvarto::test
