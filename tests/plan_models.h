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

// DeepSeek-V3 and V3.2: 128 heads of 128 + 64 and 128, latent 512.
inline constexpr LatentShape kDeepSeekV3{
    .q_heads = 128, .latent_dim = 512, .rope_dim = 64, .nope_dim = 128, .v_dim = 128};

inline ModelSpec deepseek_v3() { return uniform_model(mla_layer(kDeepSeekV3), 61); }
inline ModelSpec deepseek_v32() {
  return uniform_model(dsa_layer(kDeepSeekV3, {.heads = 64, .dim = 128, .top_k = 2048}), 61);
}

// DeepSeek-V4: `num_swa` layers with a window alone, then `first_ratio` and the other alternate.
struct V4Model {
  std::uint32_t num_swa = 0, num_csa = 0, num_hca = 0, q_heads = 0;
  std::uint64_t top_k = 0;
};
inline constexpr V4Model kV4Flash{2, 21, 20, 64, 512};
inline constexpr V4Model kV4Pro{0, 30, 31, 128, 1024};

inline ModelSpec deepseek_v4(const V4Model& model) {
  CompressedShape shape{.q_heads = model.q_heads, .nope_dim = 448, .rope_dim = 64, .window = 128};
  std::vector<LayerSpec> layers(model.num_swa, compressed_layer(shape));
  shape.ratio = 4;
  shape.has_overlap = true;
  shape.indexer = {.heads = 64, .dim = 128, .top_k = model.top_k};
  layers.insert(layers.end(), model.num_csa, compressed_layer(shape));
  shape.ratio = 128;
  shape.has_overlap = false;
  shape.indexer.reset();
  layers.insert(layers.end(), model.num_hca, compressed_layer(shape));
  return model_of(layers);
}

// DeepSeek-V4.1-Flash: 2 layers with a window alone, 18 of ratio 2, 20 of ratio 1; rows and index
// keys are owned by layers 2, 8, 14 and 20.
inline ModelSpec deepseek_v41() {
  std::vector<LayerSpec> layers;
  for (std::uint32_t i = 0; i < 40; ++i) {
    CompressedShape shape{.q_heads = 64,
                          .nope_dim = 448,
                          .rope_dim = 64,
                          .window = 128,
                          .ratio = i < 2    ? 0u
                                   : i < 20 ? 2u
                                            : 1u,
                          .is_nvfp4_release = true};
    if (i >= 2) shape.indexer = {.heads = 32, .dim = 128, .top_k = 512};
    const std::uint32_t owner = i >= 20 ? 20 : i >= 14 ? 14 : i >= 8 ? 8 : 2;
    if (i > 2 && i != owner) shape.kv_owner_layer = owner;
    layers.push_back(compressed_layer(shape));
  }
  return model_of(layers);
}

}  // namespace kvarto::test
