// The architectures as compositions of streams: one function a family of architectures, each
// defined in `architectures/<name>.cc`. They take plain numbers and return one layer.
//
// Requires throughout: counts and widths are at least 1 and within the limits of keys.h.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvarto/model_spec.h"

namespace kvarto {

// MHA, GQA, MQA; with a window, a chunk, or neither. The architecture's name follows from the
// numbers: `swa` with a window, `chunked` with a chunk, else mha, gqa or mqa.
struct DenseShape {
  std::uint32_t q_heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t qk_dim = 0;
  std::uint32_t v_dim = 0;
  std::uint64_t window = 0;                  // tokens, 0 = none
  std::uint64_t chunk = 0;                   // tokens, 0 = none
  std::optional<std::uint32_t> owner_layer;  // the layer whose k and v this one reads
};
[[nodiscard]] LayerSpec dense_layer(const DenseShape& shape);

// MLA: one latent row for all heads, [latent, rope]. rope_dim may be 0.
struct LatentShape {
  std::uint32_t q_heads = 0;
  std::uint32_t latent_dim = 0;
  std::uint32_t rope_dim = 0;
  // Dims of one head before absorption, for those who expand it: QueryShape::full_qk_dim is
  // nope + rope. 0 = unknown.
  std::uint32_t nope_dim = 0;
  std::uint32_t v_dim = 0;
};
[[nodiscard]] LayerSpec mla_layer(const LatentShape& shape);

// DSA: MLA rows read by top-k; index keys read all.
struct IndexerShape {
  std::uint32_t heads = 0;
  std::uint32_t dim = 0;
  std::uint64_t top_k = 0;  // rows of the stream it selects from
  std::uint64_t pool = 1;   // tokens per index key (GLM-5.3 index_kpool); DSA only
  // Index keys scored at most, in whole blocks chosen by an earlier layer (V4.1); 0 = all.
  std::uint64_t candidate_rows = 0;
  std::optional<std::uint32_t> selection_layer;  // reuse that layer's selection, own no index keys
};
[[nodiscard]] LayerSpec dsa_layer(const LatentShape& shape, const IndexerShape& indexer);

// DeepSeek-V4 layers: `window_kv` always; compressed rows every `ratio` tokens (0 = none). With an
// indexer they are read by top-k (CSA), without one all are (HCA).
struct CompressedShape {
  std::uint32_t q_heads = 0;
  std::uint32_t nope_dim = 0;
  std::uint32_t rope_dim = 0;
  std::uint64_t window = 0;
  std::uint64_t ratio = 0;
  bool has_overlap = false;  // CSA's compressor sees the previous group too
  std::optional<IndexerShape> indexer;
  bool is_nvfp4_release = false;  // V4.1's formats
  // The layer whose compressed rows and index keys this one reads; it owns its window only.
  std::optional<std::uint32_t> kv_owner_layer;
  // The layer whose selection it reuses; then it reads no index keys.
  std::optional<std::uint32_t> selection_layer;
};
[[nodiscard]] LayerSpec compressed_layer(const CompressedShape& shape);

// Two levels: `k`, `v` with an optional window; `k1`, `v1` every `group` tokens.
struct MultilevelShape {
  DenseShape dense;  // its window is level 0's, 0 = never dies
  std::uint64_t group = 16;
  std::uint64_t ttl = 0;  // tokens, 0 = never
};
[[nodiscard]] LayerSpec multilevel_layer(const MultilevelShape& shape);

// Predictor-driven sparse reads: key statistics per block, a step-only mask.
struct DynamicShape {
  DenseShape dense;
  double ratio = 0.25;
  std::uint64_t block = 16;
};
[[nodiscard]] LayerSpec dynamic_layer(const DynamicShape& shape);

// Whole blocks chosen by summaries: Quest (min and max of K), MoBA (mean of K), NSA (compressed
// K and V every 16 tokens, plus the reads of dense.window), MiniMax-M3 and Qwen3.8 (index keys).
struct BlockSparseShape {
  enum class Summary : std::uint8_t { kMinMax, kMean, kNsa, kIndexKey };
  std::string architecture;  // "" = by the summary: quest, moba, nsa, block_sparse
  DenseShape dense;          // its window is read beside the blocks; nothing dies
  Summary summary = Summary::kMinMax;
  std::uint64_t block = 16;       // tokens
  std::uint64_t budget = 0;       // tokens read at most
  std::uint32_t index_heads = 0;  // kIndexKey only
  std::uint32_t index_dim = 0;
  std::uint64_t index_pool = 1;                  // tokens per index key
  bool has_index_value = false;                  // an index value beside each index key
  std::optional<std::uint32_t> selection_layer;  // reuse that layer's selection, own no summaries
};
[[nodiscard]] LayerSpec block_sparse_layer(const BlockSparseShape& shape);

// Eviction: at most `budget` rows are kept; positions are cached beside k and v.
[[nodiscard]] LayerSpec eviction_layer(const DenseShape& shape, std::uint64_t budget);

// KIVI: an f16 tail of `residual` tokens; older K and V quantised in groups of `group`.
// Requires: bits 2 or 4, group a multiple of 32 (the codecs' scale group), v_dim likewise.
struct TailQuantisedShape {
  DenseShape dense;
  std::uint64_t residual = 128;
  std::uint32_t bits = 2;
  std::uint32_t group = 32;
};
[[nodiscard]] LayerSpec tail_quantised_layer(const TailQuantisedShape& shape);

// Constant states per sequence: those of the convolution and of the recurrence, each a list of
// fields whose heads tensor parallelism divides (and replicates where there are too few).
struct StateField {
  std::string name;
  std::uint32_t heads = 1;
  std::uint32_t width = 0;
};
struct StateShape {
  std::string architecture;  // "mamba", "mamba2", "gdn", "kda", "lightning", "short_conv"
  QueryShape query;
  std::vector<StateField> conv;   // empty = no convolution
  std::uint32_t conv_rows = 0;    // rows of it: kernel - 1
  std::vector<StateField> state;  // empty = no recurrence
  Codec conv_codec = Codec::kBF16;
  Codec state_codec = Codec::kF32;
  // The recurrence in engines that keep it in the model's own 16-bit type unless the file names
  // one.
  Codec compact_state_codec = Codec::kF32;
};
[[nodiscard]] LayerSpec state_layer(const StateShape& shape);

// CLA: groups of `group` adjacent layers read the K and V of the group's first layer.
[[nodiscard]] std::vector<LayerSpec> cla_layers(const DenseShape& shape, std::uint32_t num_layers,
                                                std::uint32_t group);
// YOCO: the lower half keeps windows (shape.window); the upper half reads one global K and V, that
// of its first layer.
[[nodiscard]] std::vector<LayerSpec> yoco_layers(const DenseShape& shape, std::uint32_t num_layers);

}  // namespace kvarto
