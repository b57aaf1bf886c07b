// Attention of GGUF models: heads with K and V, latents (MLA, DSA), block selection (QSA) and
// DeepSeek-V4's compressed rows.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "formats/gguf_frame.h"
#include "spec/architectures.h"

namespace kvarto {
namespace {

// One head's width of K and of V, on layers without and with a window.
struct HeadDims {
  std::int64_t key = 0;
  std::int64_t value = 0;
  std::int64_t window_key = 0;
  std::int64_t window_value = 0;
};

// The default of both dims is the model's width over its heads, as in llama.cpp.
Result<HeadDims> read_head_dims(const GgufFrame& frame) {
  const Keys& keys = frame.keys;
  const auto has_heads = [](std::int64_t heads) { return heads != 0; };
  const auto first = std::find_if(frame.heads.begin(), frame.heads.end(), has_heads);
  const std::int64_t heads = first == frame.heads.end() ? 0 : *first;
  KVARTO_TRY(const auto key, keys.integer({"attention.key_length"}, 1, kMaxWidth));
  KVARTO_TRY(const auto value, keys.integer({"attention.value_length"}, 1, kMaxWidth));
  if (heads == 0) return keys.missing("attention.head_count", "an integer");
  if (!key || !value) {
    if (frame.hidden_size == 0) return keys.missing("embedding_length", "an integer");
    if (frame.hidden_size % heads != 0) {
      return keys.bad("attention.head_count", fmt::format("{}", heads),
                      fmt::format("a divisor of embedding_length {}, or attention.key_length and "
                                  "attention.value_length",
                                  frame.hidden_size));
    }
  }
  HeadDims dims;
  dims.key = key.value_or(frame.hidden_size / heads);
  dims.value = value.value_or(frame.hidden_size / heads);
  KVARTO_TRY(const auto window_key, keys.integer({"attention.key_length_swa"}, 1, kMaxWidth));
  KVARTO_TRY(const auto window_value, keys.integer({"attention.value_length_swa"}, 1, kMaxWidth));
  dims.window_key = window_key.value_or(dims.key);
  dims.window_value = window_value.value_or(dims.value);
  return dims;
}

struct GgufIndexer {
  IndexerShape shape;
  std::vector<bool> is_full;  // one a block: it has an indexer of its own
};

// `attention.indexer.types` (bool, or "full" and "shared"), else the blocks that have the
// indexer's tensors, else all.
Result<std::vector<bool>> read_full_indexers(const GgufFrame& frame) {
  constexpr std::string_view kKey = "attention.indexer.types";
  constexpr std::string_view kTensor = "indexer.";
  const Value* value = frame.keys.find(kKey);
  std::vector<bool> is_full(frame.num_blocks, true);
  const auto* list = value == nullptr ? nullptr : std::get_if<ValueList>(&value->data);
  const bool is_text =
      list != nullptr && !list->empty() && std::holds_alternative<std::string>(list->front().data);
  if (is_text) {
    KVARTO_TRY(const auto words, frame.keys.strings(kKey));
    if (words->size() < frame.num_layers) {
      return frame.keys.bad(kKey, fmt::format("a list of {}", words->size()),
                            fmt::format("{}, one a layer", frame.num_layers));
    }
    for (std::uint32_t i = 0; i < frame.num_layers; ++i) is_full[i] = (*words)[i] != "shared";
    return is_full;
  }
  if (value != nullptr) {
    KVARTO_TRY(const auto flags, read_per_block(frame, kKey, 1, 1));
    for (std::uint32_t i = 0; i < frame.num_layers; ++i) is_full[i] = flags[i] != 0;
    return is_full;
  }
  std::vector<bool> by_tensor(frame.num_blocks, true);
  bool is_any = false;
  for (std::uint32_t i = 0; i < frame.num_layers; ++i) {
    by_tensor[i] = frame.tensors->has_in_block(i, kTensor);
    is_any = is_any || by_tensor[i];
  }
  return is_any ? by_tensor : is_full;
}

Result<std::optional<GgufIndexer>> read_indexer(const GgufFrame& frame) {
  const Keys& keys = frame.keys;
  constexpr std::array<std::string_view, 3> kNames = {
      "attention.indexer.head_count", "attention.indexer.key_length", "attention.indexer.top_k"};
  if (std::none_of(kNames.begin(), kNames.end(), [&](auto name) { return keys.has(name); })) {
    return std::optional<GgufIndexer>();
  }
  GgufIndexer indexer;
  KVARTO_TRY(const auto heads, keys.required_integer({kNames[0]}, 1, kMaxHeads));
  KVARTO_TRY(const auto dim, keys.required_integer({kNames[1]}, 1, kMaxWidth));
  KVARTO_TRY(const auto top_k, keys.required_integer({kNames[2]}, 1, kMaxTokens));
  KVARTO_TRY(const auto pool, keys.integer({"attention.indexer.kpool"}, 1, kMaxWidth));
  indexer.shape.heads = to_u32(heads);
  indexer.shape.dim = to_u32(dim);
  indexer.shape.top_k = static_cast<std::uint64_t>(top_k);
  indexer.shape.pool = static_cast<std::uint64_t>(pool.value_or(1));
  if (indexer.shape.top_k % indexer.shape.pool != 0) {
    return keys.bad(kNames[2], fmt::format("{}", top_k),
                    fmt::format("a multiple of attention.indexer.kpool {}", indexer.shape.pool));
  }
  KVARTO_TRY(indexer.is_full, read_full_indexers(frame));
  return std::optional<GgufIndexer>(std::move(indexer));
}

// MLA as llama.cpp runs it since 2025: `key_length` is latent + rope, the `_mla` keys one head's
// dims before absorption. nullopt for a file without them.
Result<std::optional<LatentShape>> read_latent(GgufFrame& frame) {
  const Keys& keys = frame.keys;
  KVARTO_TRY(const auto full_key, keys.integer({"attention.key_length_mla"}, 0, kMaxWidth));
  KVARTO_TRY(const auto full_value, keys.integer({"attention.value_length_mla"}, 0, kMaxWidth));
  KVARTO_TRY(const auto latent, keys.integer({"attention.kv_lora_rank"}, 1, kMaxWidth));
  if (full_key.value_or(0) == 0 || full_value.value_or(0) == 0) {
    if (latent) {
      frame.notes.push_back(
          "attention.kv_lora_rank: the file has no keys for a latent cache (key_length_mla, "
          "value_length_mla), so that llama.cpp caches full heads; a newer conversion would not");
    }
    return std::optional<LatentShape>();
  }
  if (!latent) return keys.missing("attention.kv_lora_rank", "an integer");
  KVARTO_TRY(const auto stated_rope, keys.integer({"rope.dimension_count"}, 0, kMaxWidth));
  KVARTO_TRY(const auto row, keys.integer({"attention.key_length"}, 1, kMaxWidth));
  const std::int64_t rope = row ? *row - *latent : stated_rope.value_or(-1);
  if (rope < 0 || (stated_rope && *stated_rope != rope) || rope > *full_key) {
    return keys.bad("attention.key_length", row ? fmt::format("{}", *row) : "none",
                    fmt::format("attention.kv_lora_rank {} + rope.dimension_count {}", *latent,
                                stated_rope ? fmt::format("{}", *stated_rope) : "(absent)"));
  }
  LatentShape shape;
  shape.latent_dim = to_u32(*latent);
  shape.rope_dim = to_u32(rope);
  shape.nope_dim = to_u32(*full_key - rope);
  shape.v_dim = to_u32(*full_value);
  return std::optional<LatentShape>(shape);
}

Status read_latent_blocks(const GgufFrame& frame, LatentShape latent,
                          std::vector<LayerSpec>& blocks) {
  KVARTO_TRY(const auto indexer, read_indexer(frame));
  std::optional<std::uint32_t> last_full;
  for (std::uint32_t i = 0; i < frame.num_blocks; ++i) {
    if (frame.kv_heads[i] == 0) continue;
    latent.q_heads = to_u32(frame.heads[i]);
    if (latent.q_heads == 0) return frame.keys.missing("attention.head_count", "an integer");
    if (!indexer) {
      blocks[i] = mla_layer(latent);
      continue;
    }
    IndexerShape own = indexer->shape;
    if (!indexer->is_full[i] && last_full) {
      own.selection_layer = last_full;
    } else {
      last_full = i;
    }
    blocks[i] = dsa_layer(latent, own);
  }
  return {};
}

// Attention that reads whole blocks chosen by index keys.
struct BlockSelection {
  BlockSparseShape shape;
  std::vector<std::int64_t> tokens;  // of a selected block, one entry a block; 0 = reads all
  bool is_pooled = false;            // one index key a selected block, not one a token
};

// Qwen3.8: `top_k` tokens in blocks of `compress_ratios`, one pooled index key each.
Result<BlockSelection> read_pooled_selection(const GgufFrame& frame) {
  constexpr std::int64_t kRatio = 4;  // indexer_compress_ratio of the published model
  BlockSelection selection;
  KVARTO_TRY(const auto ratio,
             frame.keys.integer({"attention.indexer.compress_ratio"}, 1, kMaxWidth));
  KVARTO_TRY(selection.tokens,
             read_per_block(frame, "attention.compress_ratios", kMaxWidth, ratio.value_or(kRatio)));
  selection.shape.architecture = "qsa";
  selection.is_pooled = true;
  return selection;
}

// MiniMax-M3: `top_k` blocks, an index key for every token, none on the leading dense layers.
Result<BlockSelection> read_unpooled_selection(const GgufFrame& frame) {
  BlockSelection selection;
  const Keys& keys = frame.keys;
  KVARTO_TRY(const auto block,
             keys.required_integer({"attention.indexer.block_size"}, 1, kMaxWidth));
  KVARTO_TRY(const auto dense, keys.integer({"leading_dense_block_count"}, 0, kMaxLayers));
  selection.tokens.assign(frame.num_blocks, block);
  const auto first = std::min<std::int64_t>(dense.value_or(0), frame.num_blocks);
  std::fill_n(selection.tokens.begin(), first, 0);
  return selection;
}

Result<std::optional<BlockSelection>> read_block_selection(GgufFrame& frame) {
  KVARTO_TRY(const auto indexer, read_indexer(frame));
  if (!indexer) return std::optional<BlockSelection>();
  const bool is_qwen = frame.rule.model_type == "qwen4_exp";
  if (!is_qwen && frame.rule.model_type != "minimax_m3") {
    frame.notes.push_back(
        "attention.indexer: index keys of this architecture are not known and not counted");
    return std::optional<BlockSelection>();
  }
  KVARTO_TRY(BlockSelection selection,
             is_qwen ? read_pooled_selection(frame) : read_unpooled_selection(frame));
  const auto largest = std::max_element(selection.tokens.begin(), selection.tokens.end());
  selection.shape.summary = BlockSparseShape::Summary::kIndexKey;
  selection.shape.budget =
      indexer->shape.top_k * (is_qwen ? 1 : static_cast<std::uint64_t>(*largest));
  selection.shape.index_heads = indexer->shape.heads;
  selection.shape.index_dim = indexer->shape.dim;
  return std::optional<BlockSelection>(std::move(selection));
}

Result<DenseShape> dense_shape(const GgufFrame& frame, const HeadDims& dims,
                               const GgufWindow& window, std::uint32_t block) {
  const std::int64_t heads = frame.heads[block];
  const std::int64_t kv_heads = frame.kv_heads[block];
  if (heads == 0 || heads % kv_heads != 0) {
    return frame.keys.bad("attention.head_count_kv", fmt::format("{} in block {}", kv_heads, block),
                          fmt::format("a divisor of attention.head_count {}", heads));
  }
  const bool is_windowed = window.window != 0;
  DenseShape shape;
  shape.q_heads = to_u32(heads);
  shape.kv_heads = to_u32(kv_heads);
  shape.qk_dim = to_u32(is_windowed ? dims.window_key : dims.key);
  shape.v_dim = to_u32(is_windowed ? dims.window_value : dims.value);
  shape.window = window.window;
  shape.chunk = window.chunk;
  return shape;
}

// The number of layers, from the first on, that own their K and V; the others read the last of
// them that has their kind (Gemma 3n and 4).
Result<std::uint32_t> read_num_owners(const GgufFrame& frame) {
  KVARTO_TRY(const auto shared, frame.keys.integer({"attention.shared_kv_layers"}, 0, kMaxLayers));
  if (shared && *shared > 0 && *shared >= static_cast<std::int64_t>(frame.num_layers)) {
    return frame.keys.bad("attention.shared_kv_layers", fmt::format("{}", *shared),
                          fmt::format("fewer than the {} layers", frame.num_layers));
  }
  if (shared) return frame.num_layers - to_u32(*shared);
  if (frame.rule.num_kv_layers == 0) return frame.num_layers;
  return std::min(frame.rule.num_kv_layers, frame.num_layers);
}

Result<std::uint32_t> owner_of(const GgufFrame& frame, const std::vector<GgufWindow>& windows,
                               std::uint32_t num_owners, std::uint32_t block) {
  for (std::uint32_t i = num_owners; i-- > 0;) {
    if ((windows[i].window != 0) == (windows[block].window != 0) && frame.kv_heads[i] != 0) {
      return i;
    }
  }
  return frame.keys.bad("attention.shared_kv_layers", fmt::format("no owner for layer {}", block),
                        "a layer with the same window before the shared ones");
}

Status read_head_blocks(GgufFrame& frame, std::vector<LayerSpec>& blocks) {
  KVARTO_TRY(const HeadDims dims, read_head_dims(frame));
  KVARTO_TRY(const auto windows, read_gguf_windows(frame));
  KVARTO_TRY(const std::uint32_t num_owners, read_num_owners(frame));
  KVARTO_TRY(auto selection, read_block_selection(frame));
  for (std::uint32_t i = 0; i < frame.num_blocks; ++i) {
    if (frame.kv_heads[i] == 0) continue;
    KVARTO_TRY(DenseShape shape, dense_shape(frame, dims, windows[i], i));
    if (i >= num_owners && i < frame.num_layers) {
      KVARTO_TRY(shape.owner_layer, owner_of(frame, windows, num_owners, i));
    }
    if (!selection || selection->tokens[i] == 0) {
      blocks[i] = dense_layer(shape);
      continue;
    }
    BlockSparseShape& sparse = selection->shape;
    sparse.dense = shape;
    sparse.block = static_cast<std::uint64_t>(selection->tokens[i]);
    sparse.index_pool = selection->is_pooled ? sparse.block : 1;
    blocks[i] = block_sparse_layer(sparse);
  }
  return {};
}

// DeepSeek-V4: one ratio a block; published lists have further entries behind the last block.
Result<std::vector<std::int64_t>> read_ratios(const GgufFrame& frame) {
  constexpr std::string_view kKey = "attention.compress_ratios";
  KVARTO_TRY(const auto ratios, frame.keys.integers(kKey, 0, kMaxWidth));
  if (!ratios) return frame.keys.missing(kKey, "a list with one ratio a block");
  if (ratios->size() < frame.num_blocks) {
    return frame.keys.bad(kKey, fmt::format("a list of {}", ratios->size()),
                          fmt::format("{}, one a block", frame.num_blocks));
  }
  return *ratios;
}

Status read_compressed_blocks(const GgufFrame& frame, std::vector<LayerSpec>& blocks) {
  // Ratios of the released models: with overlap and indexer (CSA), and dense (HCA).
  constexpr std::int64_t kSparseRatio = 4;
  constexpr std::int64_t kHeavyRatio = 128;
  const Keys& keys = frame.keys;
  KVARTO_TRY(const auto ratios, read_ratios(frame));
  KVARTO_TRY(const auto window, keys.required_integer({"attention.sliding_window"}, 1, kMaxTokens));
  KVARTO_TRY(const auto dim, keys.required_integer({"attention.key_length"}, 1, kMaxWidth));
  KVARTO_TRY(const auto rope, keys.required_integer({"rope.dimension_count"}, 0, dim - 1));
  KVARTO_TRY(const auto indexer, read_indexer(frame));
  for (std::uint32_t i = 0; i < frame.num_blocks; ++i) {
    if (frame.heads[i] == 0) return keys.missing("attention.head_count", "an integer");
    CompressedShape shape;
    shape.q_heads = to_u32(frame.heads[i]);
    shape.nope_dim = to_u32(dim - rope);
    shape.rope_dim = to_u32(rope);
    shape.window = static_cast<std::uint64_t>(window);
    shape.ratio = static_cast<std::uint64_t>(ratios[i]);
    if (ratios[i] == kSparseRatio) {
      if (!indexer) return keys.missing("attention.indexer.head_count", "an integer");
      shape.has_overlap = true;
      shape.indexer = indexer->shape;
    } else if (ratios[i] != 0 && ratios[i] != kHeavyRatio) {
      return keys.bad(fmt::format("attention.compress_ratios[{}]", i), fmt::format("{}", ratios[i]),
                      fmt::format("0, {} or {}", kSparseRatio, kHeavyRatio));
    }
    blocks[i] = compressed_layer(shape);
  }
  return {};
}

}  // namespace

Status read_gguf_attention(GgufFrame& frame, std::vector<LayerSpec>& blocks) {
  if (frame.rule.is_compressed) return read_compressed_blocks(frame, blocks);
  KVARTO_TRY(const auto latent, read_latent(frame));
  if (latent) return read_latent_blocks(frame, *latent, blocks);
  return read_head_blocks(frame, blocks);
}

}  // namespace kvarto
