// DeepSeek-V2, V3 and their relatives: MLA in every layer, with or without an indexer (DSA).
//
// Keys and defaults: the config classes of the transformers library (src/transformers/models/
// deepseek_v2, deepseek_v3, deepseek_v32, glm4_moe_lite, glm_moe_dsa, mistral4, minicpm3,
// longcat_flash) and, for Kimi, of the published model folders, which subclass DeepSeek-V3's.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "spec/families/all.h"
#include "spec/families/layer_list.h"
#include "spec/families/shapes.h"

namespace kvarto {
namespace {

struct LatentType {
  std::string_view model_type;
  std::string_view config_class;
  std::int64_t layers, hidden, context;
  LatentDefaults latent;
  IndexerDefaults indexer;  // heads 0 = the type has none
};

constexpr std::array kTypes = {
    LatentType{"deepseek_v2", "DeepseekV2Config", 32, 4096, 2048, {32, 512, 64, 128, 128}, {}},
    LatentType{"deepseek_v3", "DeepseekV3Config", 61, 7168, 4096, {128, 512, 64, 128, 128}, {}},
    LatentType{"deepseek_v32",
               "DeepseekV32Config",
               61,
               7168,
               163'840,
               {128, 512, 64, 128, 128},
               {64, 128, 2048}},
    LatentType{
        "glm4_moe_lite", "Glm4MoeLiteConfig", 47, 2048, 202'752, {20, 512, 64, 192, 256}, {}},
    LatentType{"glm_moe_dsa",
               "GlmMoeDsaConfig",
               78,
               6144,
               202'752,
               {64, 512, 64, 192, 256},
               {32, 128, 2048}},
    LatentType{"kimi_k2", "DeepseekV3Config", 61, 7168, 4096, {128, 512, 64, 128, 128}, {}},
    LatentType{"kimi_k25", "DeepseekV3Config", 61, 7168, 4096, {128, 512, 64, 128, 128}, {}},
    LatentType{
        "longcat_flash", "LongcatFlashConfig", 56, 6144, 131'072, {64, 512, 64, 128, 128}, {}},
    LatentType{"minicpm3", "MiniCPM3Config", 62, 2560, 32'768, {40, 256, 32, 64, 0}, {}},
    LatentType{"mistral4", "Mistral4Config", 36, 4096, 1'048'576, {32, 256, 64, 64, 128}, {}},
};

const LatentType& type_of(const Keys& keys, const Keys& root) {
  const std::string name = effective_model_type(keys, root);
  const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const LatentType& t) { return t.model_type == name; });
  return type != kTypes.end() ? *type : kTypes.front();
}

// LongCat-Flash: `num_layers` shortcut blocks of two attentions each, where num_hidden_layers,
// if stated, counts the attentions.
Result<std::int64_t> read_num_layers(ClassKeys& read, const LatentType& type) {
  if (type.model_type != "longcat_flash" || !read.keys().has("num_layers")) {
    return read.count({"num_hidden_layers"}, type.layers, kMaxLayers);
  }
  KVARTO_TRY(const auto blocks, read.count({"num_layers"}, 0, kMaxLayers / 2));
  KVARTO_TRY(const auto stated, read.optional_count({"num_hidden_layers"}, kMaxLayers));
  if (stated != 0 && stated != blocks && stated != 2 * blocks) {
    return read.keys().bad("num_hidden_layers", fmt::format("{}", stated),
                           fmt::format("twice num_layers {}", blocks));
  }
  read.note(fmt::format("num_layers: {} blocks of two attentions each are {} layers here", blocks,
                        2 * blocks));
  return 2 * blocks;
}

}  // namespace

Result<std::vector<bool>> read_full_indexers(ClassKeys& read, std::int64_t num_layers) {
  constexpr std::array kWords = {LayerWord{"full", LayerContent::kSparse},
                                 LayerWord{"shared", LayerContent::kAttention}};
  constexpr std::array kLetters = {LayerWord{"F", LayerContent::kSparse},
                                   LayerWord{"S", LayerContent::kAttention}};
  const Keys& keys = read.keys();
  const auto count = static_cast<std::size_t>(num_layers);
  KVARTO_TRY(auto kinds, read_layer_words(keys, "indexer_types", count, kWords));
  if (!kinds && keys.has("index_topk_pattern")) {
    const bool is_text = std::holds_alternative<std::string>(keys.find("index_topk_pattern")->data);
    KVARTO_TRY(kinds, is_text ? read_layer_letters(keys, "index_topk_pattern", count, kLetters)
                              : read_layer_words(keys, "index_topk_pattern", count, kWords));
  }
  std::vector<bool> is_full(count, true);
  if (kinds) {
    for (std::size_t i = 0; i < count; ++i) is_full[i] = (*kinds)[i] == LayerContent::kSparse;
    if (!is_full.front()) {
      return keys.bad(keys.has("indexer_types") ? "indexer_types[0]" : "index_topk_pattern[0]",
                      "shared", "full: there is no layer before it to share with");
    }
    return is_full;
  }
  KVARTO_TRY(const auto freq, keys.integer({"index_topk_freq"}, 0, kMaxLayers));
  KVARTO_TRY(const auto offset, keys.integer({"index_skip_topk_offset"}, 0, kMaxLayers));
  const std::int64_t every = std::max<std::int64_t>(freq.value_or(1), 1);
  // GlmMoeDsaConfig: full where max(i - offset + 1, 0) is a multiple of the frequency.
  for (std::int64_t i = 0; i < num_layers; ++i) {
    const std::int64_t step = std::max<std::int64_t>(i - offset.value_or(2) + 1, 0);
    is_full[static_cast<std::size_t>(i)] = step % every == 0;
  }
  return is_full;
}

Result<ModelSpec> read_latent_family(const Keys& keys, const Keys& root) {
  const LatentType& type = type_of(keys, root);
  ClassKeys read(keys, type.config_class);
  KVARTO_TRY(const auto num_layers, read_num_layers(read, type));
  KVARTO_TRY(const auto hidden, read.count({"hidden_size"}, type.hidden, kMaxWidth));
  KVARTO_TRY(const auto context, read.count({"max_position_embeddings"}, type.context, kMaxTokens));
  KVARTO_TRY(const auto drafts, read_num_drafts(keys));
  const ClassKeys::Frame frame{num_layers, hidden, context};
  const auto count = static_cast<std::size_t>(num_layers);
  const auto num_drafts = static_cast<std::size_t>(drafts);

  // DeepSeek-VL2's small models are of this type but attend without a latent.
  KVARTO_TRY(const auto use_mla, keys.boolean("use_mla"));
  if (!use_mla.value_or(true)) {
    KVARTO_TRY(const DenseShape shape, read_attention(read, hidden, {.heads = type.latent.heads}));
    const LayerSpec layer = dense_layer(shape);
    return read.model(frame, std::vector<LayerSpec>(count, layer),
                      std::vector<LayerSpec>(num_drafts, layer), root);
  }
  KVARTO_TRY(const LatentShape latent, read_latent(read, hidden, type.latent));
  if (type.indexer.heads == 0 && !keys.has("index_topk")) {
    const LayerSpec layer = mla_layer(latent);
    return read.model(frame, std::vector<LayerSpec>(count, layer),
                      std::vector<LayerSpec>(num_drafts, layer), root);
  }
  KVARTO_TRY(IndexerShape indexer, read_indexer(read, type.indexer));
  KVARTO_TRY(const std::vector<bool> is_full, read_full_indexers(read, num_layers));
  std::vector<LayerSpec> layers;
  std::uint32_t last_full = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (is_full[i]) last_full = i;
    IndexerShape own = indexer;
    if (!is_full[i]) own.selection_layer = last_full;
    layers.push_back(dsa_layer(latent, own));
  }
  return read.model(frame, layers, std::vector<LayerSpec>(num_drafts, dsa_layer(latent, indexer)),
                    root);
}

}  // namespace kvarto
