// Llama 3.2 Vision: some layers attend to the image instead of the text. They cache K and V of the
// vision tokens: a constant per sequence, however long its text is.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "spec/families/all.h"
#include "spec/families/dense_keys.h"

namespace kvarto {
namespace {

constexpr DenseType kMllama{"mllama", "MllamaTextConfig", 40, 4096, 32, 8, kDerived, 131'072, {}};
// cross_attention_layers of MllamaTextConfig.
constexpr std::array<std::int64_t, 8> kCrossLayers = {3, 8, 13, 18, 23, 28, 33, 38};
// MllamaVisionConfig: pixels of a tile's side, pixels of a patch's side, tiles of an image.
constexpr std::int64_t kImageSize = 448;
constexpr std::int64_t kPatchSize = 14;
constexpr std::int64_t kMaxTiles = 4;
constexpr std::int64_t kMaxPixels = 65'536;
// Rows of K (heads times vision tokens) that are believed; a published model has 51,232.
constexpr std::int64_t kMaxVisionRows = std::int64_t{1} << 30;

Result<std::vector<std::int64_t>> read_cross_layers(ClassKeys& read, std::int64_t num_layers) {
  const Keys& keys = read.keys();
  KVARTO_TRY(auto stated, keys.integers("cross_attention_layers", 0, num_layers - 1));
  if (!stated) {
    read.note_default("cross_attention_layers", fmt::format("{}", fmt::join(kCrossLayers, ", ")));
    stated.emplace(kCrossLayers.begin(), kCrossLayers.end());
    if (num_layers <= kCrossLayers.back()) {
      return keys.missing("cross_attention_layers", fmt::format("layers below {}", num_layers));
    }
  }
  std::sort(stated->begin(), stated->end());
  const auto repeated = std::adjacent_find(stated->begin(), stated->end());
  if (repeated != stated->end()) {
    return keys.bad("cross_attention_layers", fmt::format("{} twice", *repeated),
                    "every layer once");
  }
  return *stated;
}

// Vision tokens of one image of the most tiles: each tile has its patches and a class token.
Result<std::int64_t> read_vision_tokens(ClassKeys& read, const Keys& root) {
  const auto vision = root.child("vision_config");
  if (!vision) read.note_default("vision_config", "448-pixel tiles of 14-pixel patches, 4 tiles");
  const auto number = [&](std::string_view key, std::int64_t class_default, std::int64_t max) {
    return vision ? vision->integer({key}, 1, max)
                  : Result<std::optional<std::int64_t>>(class_default);
  };
  KVARTO_TRY(const auto image, number("image_size", kImageSize, kMaxPixels));
  KVARTO_TRY(const auto patch, number("patch_size", kPatchSize, kMaxPixels));
  KVARTO_TRY(const auto tiles, number("max_num_tiles", kMaxTiles, 64));
  const std::int64_t side = image.value_or(kImageSize) / patch.value_or(kPatchSize);
  return tiles.value_or(kMaxTiles) * (side * side + 1);
}

// One row holds the K (or V) of all vision tokens: written once, with the image, kept to the end.
Stream vision_stream(const DenseShape& shape, const char* name, CodecRole role,
                     std::int64_t tokens) {
  Stream stream;
  stream.name = name;
  stream.fields = {{.name = fmt::format("{} of {} vision tokens", name, tokens),
                    .heads = shape.kv_heads * static_cast<std::uint32_t>(tokens),
                    .width = shape.qk_dim,
                    .role = role}};
  stream.lifetime = {Lifetime::Kind::kConstant, 0};
  return stream;
}

LayerSpec cross_layer(const DenseShape& shape, std::int64_t tokens) {
  LayerSpec layer;
  layer.architecture = "cross";
  layer.query.q_heads = shape.q_heads;
  layer.query.qk_dim = shape.qk_dim;
  layer.query.v_dim = shape.v_dim;
  layer.streams = {vision_stream(shape, "cross_k", CodecRole::kKey, tokens),
                   vision_stream(shape, "cross_v", CodecRole::kValue, tokens)};
  return layer;
}

}  // namespace

Result<ModelSpec> read_mllama_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kMllama.config_class);
  KVARTO_TRY(const DenseGeometry geometry, read_dense_geometry(read, kMllama));
  const std::int64_t num_layers = geometry.frame.num_layers;
  KVARTO_TRY(const std::vector<std::int64_t> cross, read_cross_layers(read, num_layers));
  KVARTO_TRY(const std::int64_t tokens, read_vision_tokens(read, root));
  const std::int64_t rows = tokens * geometry.shape.kv_heads;
  if (rows > kMaxVisionRows) {
    return root.bad("vision_config.image_size", fmt::format("{} vision tokens", tokens),
                    fmt::format("at most {} rows of K", kMaxVisionRows));
  }
  std::vector<LayerSpec> layers(static_cast<std::size_t>(num_layers), dense_layer(geometry.shape));
  for (const std::int64_t layer : cross) {
    layers[static_cast<std::size_t>(layer)] = cross_layer(geometry.shape, tokens);
  }
  read.note(
      fmt::format("cross_attention_layers {}: cache {} vision tokens of one image of the "
                  "most tiles, constant per sequence; a sequence without image needs none "
                  "of these bytes",
                  fmt::join(cross, ", "), tokens));
  return read.model(geometry.frame, layers, {}, root);
}

}  // namespace kvarto
