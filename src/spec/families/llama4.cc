// Llama 4: chunked local layers with RoPE, full layers without.

#include <fmt/format.h>

#include "spec/families/all.h"
#include "spec/families/dense_keys.h"

namespace kvarto {
namespace {

constexpr DenseType kLlama4{"llama4_text", "Llama4TextConfig", 48, 5120, 40, 8, 128, 131'072, {}};
constexpr std::int64_t kChunk = 8192;      // attention_chunk_size of Llama4TextConfig, tokens
constexpr std::int64_t kFullInterval = 4;  // no_rope_layer_interval of Llama4TextConfig

// Layers without RoPE are full: `no_rope_layers` has 0 for them.
Result<std::vector<LayerKind>> kinds_by_rope(ClassKeys& read, std::int64_t num_layers) {
  const Keys& keys = read.keys();
  KVARTO_TRY(const auto stated, keys.integers("no_rope_layers", 0, 1));
  KVARTO_TRY(const auto interval,
             keys.integer({"no_rope_layer_interval", "nope_layer_interval"}, 1, kMaxLayers));
  const bool has_list = stated && !stated->empty();
  if (has_list && stated->size() < static_cast<std::size_t>(num_layers)) {
    return keys.bad("no_rope_layers", fmt::format("a list of {}", stated->size()),
                    fmt::format("one entry for each of {} layers", num_layers));
  }
  if (!has_list && !interval) {
    read.note_default("no_rope_layer_interval", fmt::format("{}", kFullInterval));
  }
  const std::int64_t n = interval.value_or(kFullInterval);
  std::vector<LayerKind> kinds;
  for (std::int64_t i = 0; i < num_layers; ++i) {
    const bool is_full = has_list ? (*stated)[static_cast<std::size_t>(i)] == 0 : (i + 1) % n == 0;
    kinds.push_back(is_full ? LayerKind::kFull : LayerKind::kChunked);
  }
  return kinds;
}

}  // namespace

Result<ModelSpec> read_llama4_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kLlama4.config_class);
  KVARTO_TRY(const DenseGeometry geometry, read_dense_geometry(read, kLlama4));
  KVARTO_TRY(LayerKinds kinds, read_layer_types(read, geometry.frame.num_layers));
  if (kinds.kinds.empty()) {
    KVARTO_TRY(kinds.kinds, kinds_by_rope(read, geometry.frame.num_layers));
  }
  std::int64_t chunk = 0;  // null switches chunks off
  if (!keys.is_null("attention_chunk_size")) {
    KVARTO_TRY(chunk, read.count({"attention_chunk_size"}, kChunk, kMaxTokens));
  }
  std::vector<LayerSpec> layers;
  for (const LayerKind kind : kinds.kinds) {
    if (kind == LayerKind::kSliding) {
      return keys.bad("layer_types", "sliding_attention",
                      "full_attention or chunked_attention in this model type");
    }
    DenseShape shape = geometry.shape;
    if (kind == LayerKind::kChunked) shape.chunk = static_cast<std::uint64_t>(chunk);
    layers.push_back(dense_layer(shape));
  }
  return read.model(geometry.frame, layers, {}, root);
}

}  // namespace kvarto
