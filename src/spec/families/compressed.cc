// DeepSeek-V4: a window in every layer; CSA, HCA or nothing beside it.
//
// Keys and defaults: transformers, src/transformers/models/deepseek_v4; `compress_ratios` is the
// form of the published files (one entry a layer, then one for each prediction block).

#include <fmt/format.h>

#include <array>

#include "spec/families/all.h"
#include "spec/families/compressed_keys.h"

namespace kvarto {
namespace {

using Ratios = std::vector<std::int64_t>;

struct Rates {
  std::int64_t csa = 4;
  std::int64_t hca = 128;
};

// The compression rates: a map by layer type, or two keys of their own; defaults of the class.
Result<Rates> read_rates(const Keys& keys) {
  Rates rates;
  const Keys rates_map = keys.child("compress_rates").value_or(keys);
  KVARTO_TRY(const auto csa, rates_map.integer({"compressed_sparse_attention"}, 1, kMaxRatio));
  KVARTO_TRY(const auto hca, rates_map.integer({"heavily_compressed_attention"}, 1, kMaxRatio));
  KVARTO_TRY(const auto old_csa, keys.integer({"compress_rate_csa"}, 1, kMaxRatio));
  KVARTO_TRY(const auto old_hca, keys.integer({"compress_rate_hca"}, 1, kMaxRatio));
  rates.csa = old_csa.value_or(csa.value_or(rates.csa));
  rates.hca = old_hca.value_or(hca.value_or(rates.hca));
  if (rates.csa == rates.hca) {
    return keys.bad("compress_rates", fmt::format("{} for both layer types", rates.csa),
                    "two different rates");
  }
  return rates;
}

Result<std::optional<Ratios>> read_layer_types(const Keys& keys, std::size_t count,
                                               const Rates& rates) {
  constexpr std::array kWords = {LayerWord{"sliding_attention", LayerContent::kAttention},
                                 LayerWord{"compressed_sparse_attention", LayerContent::kSparse},
                                 LayerWord{"heavily_compressed_attention", LayerContent::kBoth}};
  KVARTO_TRY(const auto kinds, read_layer_words(keys, "layer_types", count, kWords));
  if (!kinds) return std::optional<Ratios>();
  Ratios ratios;
  for (LayerContent kind : *kinds) {
    ratios.push_back(kind == LayerContent::kAttention ? 0
                     : kind == LayerContent::kSparse  ? rates.csa
                                                      : rates.hca);
  }
  return std::optional<Ratios>(std::move(ratios));
}

// One ratio a layer, prediction blocks after them.
Result<Ratios> read_ratios(ClassKeys& read, const CompressedFrame& frame, const Rates& rates) {
  const Keys& keys = read.keys();
  const auto count = static_cast<std::size_t>(frame.num_layers);
  const auto all = count + static_cast<std::size_t>(frame.num_drafts);
  KVARTO_TRY(auto typed, read_layer_types(keys, count, rates));
  KVARTO_TRY(auto listed, read_ratio_list(keys, frame));
  if (listed) {
    for (std::size_t i = 0; i < listed->size(); ++i) {
      const std::int64_t ratio = (*listed)[i];
      if (ratio == 0 || ratio == rates.csa || ratio == rates.hca) continue;
      return keys.bad(fmt::format("compress_ratios[{}]", i), fmt::format("{}", ratio),
                      fmt::format("0, {} or {}", rates.csa, rates.hca));
    }
    if (typed && !std::equal(typed->begin(), typed->end(), listed->begin())) {
      return keys.bad("compress_ratios", "a list that differs from layer_types", "equal layers");
    }
  }
  Ratios ratios;
  if (listed) {
    ratios = std::move(*listed);
  } else if (typed) {
    ratios = std::move(*typed);
  } else {
    read.note_default("layer_types", "two HCA layers, then HCA and CSA in turn");
    for (std::size_t i = 0; i < count; ++i) {
      ratios.push_back(i < 2 || i % 2 == 0 ? rates.hca : rates.csa);
    }
  }
  if (ratios.size() < all) ratios.resize(all, 0);
  return ratios;
}

}  // namespace

Result<std::optional<Ratios>> read_ratio_list(const Keys& keys, const CompressedFrame& frame) {
  KVARTO_TRY(auto list, keys.integers("compress_ratios", 0, kMaxRatio));
  if (!list) return list;
  const auto least = static_cast<std::size_t>(frame.num_layers);
  // Published lists have one entry more for a prediction block even where no key counts it.
  const auto most = least + static_cast<std::size_t>(std::max<std::int64_t>(frame.num_drafts, 1));
  if (list->size() < least || list->size() > most) {
    return keys.bad("compress_ratios", fmt::format("{} entries", list->size()),
                    fmt::format("{} to {}: one a layer and one a prediction block", least, most));
  }
  return list;
}

Result<CompressedFrame> read_compressed_frame(ClassKeys& read, const CompressedDefaults& defaults) {
  CompressedFrame frame;
  const Keys& keys = read.keys();
  KVARTO_TRY(frame.num_layers, read.count({"num_hidden_layers"}, defaults.layers, kMaxLayers));
  KVARTO_TRY(frame.hidden_size, read.count({"hidden_size"}, defaults.hidden, kMaxWidth));
  KVARTO_TRY(frame.max_context,
             read.count({"max_position_embeddings"}, defaults.context, kMaxTokens));
  KVARTO_TRY(frame.num_drafts, read_num_drafts(keys));
  KVARTO_TRY(const auto heads, read.count({"num_attention_heads"}, 64, kMaxHeads));
  KVARTO_TRY(const auto head_dim, read.count({"head_dim"}, 512, kMaxRowDim));
  KVARTO_TRY(const auto window, read.count({"sliding_window"}, 128, kMaxTokens));
  KVARTO_TRY(auto rope, keys.integer({"qk_rope_head_dim"}, 0, kMaxWidth));
  if (!rope) {
    KVARTO_TRY(const auto factor, keys.real("partial_rotary_factor"));
    if (factor && !(*factor >= 0 && *factor <= 1)) {
      return keys.bad("partial_rotary_factor", fmt::format("{}", *factor), "a number from 0 to 1");
    }
    // The class's default is 64 of 512 elements.
    rope =
        factor ? static_cast<std::int64_t>(static_cast<double>(head_dim) * *factor) : head_dim / 8;
    if (!factor) read.note_default("qk_rope_head_dim", fmt::format("{}", *rope));
  }
  if (*rope >= head_dim) {
    return keys.bad("qk_rope_head_dim", fmt::format("{}", *rope),
                    fmt::format("less than head_dim {}", head_dim));
  }
  frame.shape.q_heads = narrow(heads);
  frame.shape.rope_dim = narrow(*rope);
  frame.shape.nope_dim = narrow(head_dim - *rope);
  frame.shape.window = static_cast<std::uint64_t>(window);
  KVARTO_TRY(frame.indexer, read_indexer(read, defaults.indexer));
  if (frame.indexer.dim > kMaxRowDim) {
    return keys.bad("index_head_dim", fmt::format("{}", frame.indexer.dim),
                    fmt::format("an integer from 1 to {}", kMaxRowDim));
  }
  return frame;
}

Result<ModelSpec> read_deepseek_v4(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "DeepseekV4Config");
  KVARTO_TRY(const CompressedFrame frame,
             read_compressed_frame(read, {43, 4096, 1'048'576, {64, 128, 512}}));
  KVARTO_TRY(const Rates rates, read_rates(keys));
  KVARTO_TRY(const Ratios ratios, read_ratios(read, frame, rates));
  std::vector<LayerSpec> layers;
  for (std::int64_t ratio : ratios) {
    CompressedShape shape = frame.shape;
    shape.ratio = static_cast<std::uint64_t>(ratio);
    if (ratio == rates.csa) {
      shape.has_overlap = true;
      shape.indexer = frame.indexer;
    }
    layers.push_back(compressed_layer(shape));
  }
  return frame.model(read, std::move(layers), root);
}

}  // namespace kvarto
