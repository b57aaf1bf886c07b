// What DeepSeek-V4 and V4.1 read alike.

#pragma once

#include <optional>
#include <vector>

#include "spec/families/layer_list.h"
#include "spec/families/shapes.h"

namespace kvarto {

// Tokens that one compressed row stands for at most, and its elements: far above the published 128
// and 512, low enough that a compressor's state (4 x ratio x elements) fits a field.
inline constexpr std::int64_t kMaxRatio = 4096;
inline constexpr std::int64_t kMaxRowDim = 65'536;

struct CompressedDefaults {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t context = 0;
  IndexerDefaults indexer;
};

struct CompressedFrame {
  std::int64_t num_layers = 0;
  std::int64_t num_drafts = 0;
  std::int64_t hidden_size = 0;
  std::int64_t max_context = 0;
  CompressedShape shape;  // of a layer that keeps its window only
  IndexerShape indexer;

  // `layers` holds the model's layers, then its prediction blocks.
  [[nodiscard]] Result<ModelSpec> model(ClassKeys& read, std::vector<LayerSpec> layers,
                                        const Keys& root) const {
    const auto first_draft = layers.begin() + num_layers;
    const std::vector<LayerSpec> drafts(first_draft, layers.end());
    layers.erase(first_draft, layers.end());
    return read.model({num_layers, hidden_size, max_context}, layers, drafts, root);
  }
};

[[nodiscard]] Result<CompressedFrame> read_compressed_frame(ClassKeys& read,
                                                            const CompressedDefaults& defaults);

// `compress_ratios`: one entry a layer, at most one more for each prediction block.
[[nodiscard]] Result<std::optional<std::vector<std::int64_t>>> read_ratio_list(
    const Keys& keys, const CompressedFrame& frame);

}  // namespace kvarto
