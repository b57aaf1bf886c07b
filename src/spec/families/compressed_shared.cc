// DeepSeek-V4.1: compressed rows in a few owner layers, which the layers after them read; some of
// those choose rows of their own, the others reuse a choice.
//
// Keys and defaults: NeMo Automodel, components/models/deepseek_v41/config.py.

#include <fmt/format.h>

#include <algorithm>

#include "spec/families/all.h"
#include "spec/families/compressed_keys.h"

namespace kvarto {
namespace {

using Ids = std::vector<std::uint32_t>;

struct Sharing {
  std::vector<std::int64_t> ratios;  // prediction blocks at the end
  Ids kv_sources;
  Ids index_sources;
  std::int64_t candidate_source = -1;
  std::uint64_t candidate_rows = 0;
};

Result<Ids> read_ids(ClassKeys& read, std::string_view key, std::size_t num_layers,
                     const Ids& class_default) {
  KVARTO_TRY(const auto ids, read_layer_numbers(read.keys(), key, num_layers, 0));
  if (ids) return *ids;
  Ids kept;
  for (std::uint32_t id : class_default) {
    if (id < num_layers) kept.push_back(id);
  }
  read.note_default(key, fmt::format("{} layers", kept.size()));
  return kept;
}

// The release: two layers without, 18 of ratio 2, 20 of ratio 1, three prediction blocks without.
std::vector<std::int64_t> release_ratios() {
  std::vector<std::int64_t> ratios(2, 0);
  ratios.insert(ratios.end(), 18, 2);
  ratios.insert(ratios.end(), 20, 1);
  ratios.insert(ratios.end(), 3, 0);
  return ratios;
}

Result<Sharing> read_sharing(ClassKeys& read, const CompressedFrame& frame) {
  Sharing sharing;
  const Keys& keys = read.keys();
  const auto count = static_cast<std::size_t>(frame.num_layers);
  const auto all = count + static_cast<std::size_t>(frame.num_drafts);
  KVARTO_TRY(auto ratios, read_ratio_list(keys, frame));
  if (!ratios) {
    ratios = release_ratios();
    if (ratios->size() < count) {
      return keys.missing("compress_ratios", fmt::format("a list of {} entries", count));
    }
    read.note_default("compress_ratios", "the release's 43 entries");
    ratios->resize(count);
  }
  if (ratios->size() < all) ratios->resize(all, 0);
  sharing.ratios = std::move(*ratios);
  KVARTO_TRY(sharing.kv_sources, read_ids(read, "kv_source_layer_ids", count, {2, 8, 14, 20}));
  KVARTO_TRY(sharing.index_sources,
             read_ids(read, "index_source_layer_ids", count, {2, 8, 14, 20, 24, 28, 32, 36}));
  KVARTO_TRY(const auto source, keys.integer({"candidate_source_layer_id"}, -1, kMaxLayers));
  sharing.candidate_source = source.value_or(20);
  KVARTO_TRY(const auto blocks, read.count({"candidate_topk_blocks"}, 2048, kMaxWidth));
  KVARTO_TRY(const auto block, read.count({"candidate_block_size"}, 8, kMaxWidth));
  sharing.candidate_rows = static_cast<std::uint64_t>(blocks * block);
  return sharing;
}

std::optional<std::uint32_t> last_before(const Ids& ids, std::uint32_t layer) {
  const auto after = std::upper_bound(ids.begin(), ids.end(), layer);
  if (after == ids.begin()) return std::nullopt;
  return *std::prev(after);
}

Status check_sources(const Keys& keys, const Sharing& sharing) {
  for (const auto& [key, ids] : {std::pair{"kv_source_layer_ids", &sharing.kv_sources},
                                 std::pair{"index_source_layer_ids", &sharing.index_sources}}) {
    for (std::uint32_t id : *ids) {
      if (sharing.ratios[id] == 0) {
        return keys.bad(key, fmt::format("layer {}", id), "layers that compress");
      }
    }
  }
  for (std::uint32_t id : sharing.kv_sources) {
    if (!std::binary_search(sharing.index_sources.begin(), sharing.index_sources.end(), id)) {
      return keys.bad("index_source_layer_ids", fmt::format("no layer {}", id),
                      "every layer of kv_source_layer_ids");
    }
  }
  return {};
}

Result<LayerSpec> shared_layer(const Keys& keys, const CompressedFrame& frame,
                               const Sharing& sharing, std::uint32_t layer) {
  CompressedShape shape = frame.shape;
  shape.is_nvfp4_release = true;
  shape.ratio = static_cast<std::uint64_t>(sharing.ratios[layer]);
  if (shape.ratio == 0) return compressed_layer(shape);
  const auto owner = last_before(sharing.kv_sources, layer);
  const auto chooser = last_before(sharing.index_sources, layer);
  if (!owner || !chooser || sharing.ratios[*owner] != sharing.ratios[layer]) {
    return keys.bad(fmt::format("compress_ratios[{}]", layer),
                    fmt::format("{}", sharing.ratios[layer]),
                    "the ratio of a layer of kv_source_layer_ids before it");
  }
  shape.indexer = frame.indexer;
  if (*owner != layer) shape.kv_owner_layer = *owner;
  if (*chooser != layer) shape.selection_layer = *chooser;
  if (sharing.candidate_source >= 0 && sharing.candidate_source < layer) {
    shape.indexer->candidate_rows = sharing.candidate_rows;
  }
  return compressed_layer(shape);
}

}  // namespace

Result<ModelSpec> read_deepseek_v41(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "DeepseekV41TextConfig");
  KVARTO_TRY(const CompressedFrame frame,
             read_compressed_frame(read, {40, 5120, 1'048'576, {32, 128, 512}}));
  KVARTO_TRY(const Sharing sharing, read_sharing(read, frame));
  KVARTO_CHECK_OK(check_sources(keys, sharing));
  std::vector<LayerSpec> layers;
  for (std::uint32_t i = 0; i < sharing.ratios.size(); ++i) {
    const bool is_draft = i >= static_cast<std::size_t>(frame.num_layers);
    if (is_draft && sharing.ratios[i] != 0) {
      return keys.bad(fmt::format("compress_ratios[{}]", i), fmt::format("{}", sharing.ratios[i]),
                      "0 for a prediction block");
    }
    KVARTO_TRY(LayerSpec layer, shared_layer(keys, frame, sharing, i));
    layers.push_back(std::move(layer));
  }
  if (keys.has("engram_layer_ids")) {
    read.note("engram_layer_ids: the token history of the n-gram embedding is not counted");
  }
  return frame.model(read, std::move(layers), root);
}

}  // namespace kvarto
