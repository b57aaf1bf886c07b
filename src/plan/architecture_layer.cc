// The layers that architecture words stand for: the model's own heads, and for what it does not
// have the numbers of the family's best-known model.

#include <fmt/format.h>

#include <string>
#include <utility>

#include "plan/architecture_word.h"
#include "spec/architectures.h"

namespace kvarto {
namespace {

// meta-llama/Llama-3.1-8B config.json.
constexpr std::uint32_t kKnownKvHeads = 8;
// deepseek-ai/DeepSeek-V3 config.json: kv_lora_rank, qk_rope_head_dim.
constexpr std::uint32_t kKnownLatentDim = 512;
constexpr std::uint32_t kKnownRopeDim = 64;
// deepseek-ai/DeepSeek-V3.2-Exp config.json: index_n_heads, index_head_dim, index_topk.
constexpr std::uint32_t kKnownIndexHeads = 64;
constexpr std::uint32_t kKnownIndexDim = 128;
constexpr std::uint64_t kKnownTopK = 2048;
// deepseek-ai/DeepSeek-V4-Flash config.json: head_dim 512 of which 64 are rotated, window,
// compression ratios of CSA and HCA, index_topk.
constexpr std::uint32_t kV4NopeDim = 448;
constexpr std::uint32_t kV4RopeDim = 64;
constexpr std::uint64_t kV4Window = 128;
constexpr std::uint64_t kV4CsaRatio = 4;
constexpr std::uint64_t kV4HcaRatio = 128;
constexpr std::uint64_t kV4TopK = 512;
// mistralai/Mistral-7B-v0.1 config.json: sliding_window.
constexpr std::uint64_t kKnownWindow = 4096;
// The two-level scheme of this project's documents: one aggregate for 16 tokens.
constexpr std::uint64_t kKnownGroup = 16;
constexpr double kKnownRatio = 0.25;
// Quest, arXiv 2406.10774: pages of 16 tokens; a budget in the middle of those it evaluates.
constexpr std::uint64_t kQuestBlock = 16;
constexpr std::uint64_t kQuestBudget = 1024;
// MoBA, arXiv 2502.13189: blocks of 512 tokens, the best 3.
constexpr std::uint64_t kMobaBlock = 512;
constexpr std::uint64_t kMobaBlocks = 3;
// NSA, arXiv 2502.11089: 16 selected blocks of 64 tokens, a window of 512.
constexpr std::uint64_t kNsaBlock = 64;
constexpr std::uint64_t kNsaBlocks = 16;
constexpr std::uint64_t kNsaWindow = 512;

// Keeps the compressor's state, four times as wide with overlap, within 32 bits.
constexpr std::uint64_t kMaxStateElements = 1u << 28;

// The first of the numbers that is not 0.
template <typename T>
T first_set(T a, T b, T c = 0) {
  if (a != 0) return a;
  return b != 0 ? b : c;
}

DenseShape dense_shape(const LayerHeads& heads, std::uint32_t kv_heads) {
  return {
      .q_heads = heads.q_heads, .kv_heads = kv_heads, .qk_dim = heads.qk_dim, .v_dim = heads.v_dim};
}

LatentShape latent_shape(const ArchitectureWord& word, const LayerHeads& heads,
                         const WhatIfDefaults& defaults) {
  const bool is_in_word = word.kind == ArchitectureKind::kMla && word.first != 0;
  LatentShape shape{.q_heads = heads.q_heads, .nope_dim = heads.qk_dim, .v_dim = heads.v_dim};
  if (is_in_word) {
    shape.latent_dim = static_cast<std::uint32_t>(word.first);
    shape.rope_dim = static_cast<std::uint32_t>(word.second);
    return shape;
  }
  shape.latent_dim = first_set(defaults.latent_dim, heads.latent_dim, kKnownLatentDim);
  // A latent of the model's own may have no rotated part.
  const bool is_own = defaults.rope_dim == 0 && heads.latent_dim != 0;
  shape.rope_dim = is_own ? heads.rope_dim : first_set(defaults.rope_dim, kKnownRopeDim);
  return shape;
}

IndexerShape indexer_shape(const LayerHeads& heads, const WhatIfDefaults& defaults,
                           std::uint64_t top_k) {
  return {.heads = first_set(defaults.index_heads, heads.index_heads, kKnownIndexHeads),
          .dim = first_set(defaults.index_dim, heads.index_dim, kKnownIndexDim),
          .top_k = top_k};
}

// Width of a row: latent_dim names the part that is not rotated, head_dim the whole.
Result<std::uint32_t> compressed_nope_dim(const WhatIfDefaults& defaults, std::uint32_t rope_dim) {
  if (defaults.latent_dim != 0) return defaults.latent_dim;
  if (defaults.head_dim == 0) return kV4NopeDim;
  if (defaults.head_dim <= rope_dim) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("head dim {}, expected more than its rotated part, {}",
                            defaults.head_dim, rope_dim));
  }
  return defaults.head_dim - rope_dim;
}

Result<LayerSpec> compressed(const ArchitectureWord& word, const LayerHeads& heads,
                             const WhatIfDefaults& defaults) {
  const bool is_csa = word.kind == ArchitectureKind::kCsa;
  const std::uint32_t rope_dim = first_set(defaults.rope_dim, kV4RopeDim);
  KVARTO_TRY(const std::uint32_t nope_dim, compressed_nope_dim(defaults, rope_dim));
  const std::uint64_t ratio = first_set(defaults.group, is_csa ? kV4CsaRatio : kV4HcaRatio);
  if (ratio * (std::uint64_t{nope_dim} + rope_dim) > kMaxStateElements) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("architecture {}: a compressor of {} tokens x {} elements, expected at "
                    "most {} elements",
                    word.name, ratio, std::uint64_t{nope_dim} + rope_dim, kMaxStateElements));
  }
  CompressedShape shape{.q_heads = heads.q_heads,
                        .nope_dim = nope_dim,
                        .rope_dim = rope_dim,
                        .window = first_set(defaults.window, kV4Window),
                        .ratio = ratio,
                        .has_overlap = is_csa};
  if (is_csa) {
    shape.indexer = indexer_shape(heads, defaults, first_set(defaults.top_k, kV4TopK));
  }
  return compressed_layer(shape);
}

BlockSparseShape block_sparse(const ArchitectureWord& word, const DenseShape& dense,
                              const WhatIfDefaults& defaults) {
  using Summary = BlockSparseShape::Summary;
  BlockSparseShape shape;
  shape.dense = dense;
  switch (word.kind) {
    case ArchitectureKind::kQuest:
      shape.summary = Summary::kMinMax;
      shape.block = first_set(defaults.group, kQuestBlock);
      shape.budget = first_set(word.first, defaults.top_k, kQuestBudget);
      break;
    case ArchitectureKind::kMoba:
      shape.summary = Summary::kMean;
      shape.block = first_set(defaults.group, kMobaBlock);
      shape.budget = first_set(defaults.top_k, kMobaBlocks * shape.block);
      break;
    default:
      shape.summary = Summary::kNsa;
      shape.block = first_set(defaults.group, kNsaBlock);
      shape.budget = first_set(defaults.top_k, kNsaBlocks * shape.block);
      shape.dense.window = first_set(defaults.window, kNsaWindow);
      break;
  }
  return shape;
}

// KV heads of a grouped architecture. The model's own, unless it does not group.
Result<std::uint32_t> group_heads(const ArchitectureWord& word, const LayerHeads& heads,
                                  const WhatIfDefaults& defaults) {
  const bool is_grouped = heads.kv_heads > 1 && heads.kv_heads < heads.q_heads;
  const std::uint32_t asked = first_set(static_cast<std::uint32_t>(word.first), defaults.kv_heads,
                                        is_grouped ? heads.kv_heads : kKnownKvHeads);
  if (heads.q_heads % asked != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("architecture gqa: {} query heads and {} kv heads, expected a multiple",
                            heads.q_heads, asked));
  }
  return asked;
}

Result<ArchitectureLayer> key_value_layer(const ArchitectureWord& word, const LayerHeads& heads,
                                          const WhatIfDefaults& defaults) {
  switch (word.kind) {
    case ArchitectureKind::kMha:
      return ArchitectureLayer{dense_layer(dense_shape(heads, heads.q_heads)), "mha"};
    case ArchitectureKind::kMqa:
      return ArchitectureLayer{dense_layer(dense_shape(heads, 1)), "mqa"};
    case ArchitectureKind::kGqa: {
      KVARTO_TRY(const std::uint32_t kv_heads, group_heads(word, heads, defaults));
      return ArchitectureLayer{dense_layer(dense_shape(heads, kv_heads)),
                               fmt::format("gqa:{}", kv_heads)};
    }
    default: {
      DenseShape shape = dense_shape(heads, heads.kv_heads);
      shape.window = first_set(word.first, defaults.window, kKnownWindow);
      return ArchitectureLayer{dense_layer(shape), fmt::format("swa:{}", shape.window)};
    }
  }
}

Result<ArchitectureLayer> latent_layer(const ArchitectureWord& word, const LayerHeads& heads,
                                       const WhatIfDefaults& defaults) {
  if (word.kind == ArchitectureKind::kCsa || word.kind == ArchitectureKind::kHca) {
    KVARTO_TRY(LayerSpec layer, compressed(word, heads, defaults));
    return ArchitectureLayer{std::move(layer), std::string(word.name)};
  }
  const LatentShape shape = latent_shape(word, heads, defaults);
  if (word.kind == ArchitectureKind::kMla) {
    return ArchitectureLayer{mla_layer(shape),
                             fmt::format("mla:{}+{}", shape.latent_dim, shape.rope_dim)};
  }
  const std::uint64_t top_k = first_set(word.first, defaults.top_k, kKnownTopK);
  return ArchitectureLayer{dsa_layer(shape, indexer_shape(heads, defaults, top_k)),
                           fmt::format("dsa:{}", top_k)};
}

Result<ArchitectureLayer> sparse_layer(const ArchitectureWord& word, const LayerHeads& heads,
                                       const WhatIfDefaults& defaults) {
  const DenseShape dense = dense_shape(heads, heads.kv_heads);
  if (word.kind == ArchitectureKind::kMultilevel) {
    MultilevelShape shape{.dense = dense};
    shape.group = first_set(word.first, defaults.group, kKnownGroup);
    shape.dense.window = first_set(word.second, defaults.window);
    return ArchitectureLayer{
        multilevel_layer(shape),
        shape.dense.window == 0 ? fmt::format("multilevel:{}", shape.group)
                                : fmt::format("multilevel:{}:{}", shape.group, shape.dense.window)};
  }
  if (word.kind == ArchitectureKind::kDynamic) {
    DynamicShape shape{.dense = dense};
    shape.ratio = first_set(word.ratio, defaults.ratio, kKnownRatio);
    shape.block = first_set(defaults.group, shape.block);
    return ArchitectureLayer{dynamic_layer(shape), fmt::format("dynamic:{}", shape.ratio)};
  }
  const BlockSparseShape shape = block_sparse(word, dense, defaults);
  return ArchitectureLayer{block_sparse_layer(shape), word.kind == ArchitectureKind::kQuest
                                                          ? fmt::format("quest:{}", shape.budget)
                                                          : std::string(word.name)};
}

}  // namespace

Result<ArchitectureLayer> architecture_layer(const ArchitectureWord& word, const LayerHeads& heads,
                                             const WhatIfDefaults& defaults) {
  switch (word.kind) {
    case ArchitectureKind::kMha:
    case ArchitectureKind::kMqa:
    case ArchitectureKind::kGqa:
    case ArchitectureKind::kSwa:
      return key_value_layer(word, heads, defaults);
    case ArchitectureKind::kMla:
    case ArchitectureKind::kDsa:
    case ArchitectureKind::kCsa:
    case ArchitectureKind::kHca:
      return latent_layer(word, heads, defaults);
    case ArchitectureKind::kMultilevel:
    case ArchitectureKind::kDynamic:
    case ArchitectureKind::kQuest:
    case ArchitectureKind::kMoba:
    case ArchitectureKind::kNsa:
      break;
  }
  return sparse_layer(word, heads, defaults);
}

}  // namespace kvarto
