// Shapes that several families read alike: attention beside latents, recurrences and indexers.

#pragma once

#include <cstdint>

#include "spec/architectures.h"
#include "spec/families/class_keys.h"
#include "spec/families/dense_keys.h"

namespace kvarto {

// Head dims of linear attention, whose state is their square, and kernels of short convolutions:
// far above those in use (256 and 4), low enough that every product fits a field.
inline constexpr std::int64_t kMaxLinearDim = 16'384;
inline constexpr std::int64_t kMaxKernel = 1024;

// Defaults of a config class; 0 = none, the key is required.
struct AttentionDefaults {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // 0 = as many as heads
  std::int64_t head_dim = 0;  // 0 = hidden size / heads
};
[[nodiscard]] Result<DenseShape> read_attention(ClassKeys& read, std::int64_t hidden_size,
                                                const AttentionDefaults& defaults);

struct LatentDefaults {
  std::int64_t heads = 0;
  std::int64_t latent_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t nope_dim = 0;
  std::int64_t v_dim = 0;  // 0 = hidden size / heads
};
[[nodiscard]] Result<LatentShape> read_latent(ClassKeys& read, std::int64_t hidden_size,
                                              const LatentDefaults& defaults);

struct IndexerDefaults {
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t top_k = 0;
};
[[nodiscard]] Result<IndexerShape> read_indexer(ClassKeys& read, const IndexerDefaults& defaults);

// An integer in [0, max]; absent: `class_default`, noted.
[[nodiscard]] Result<std::int64_t> count_or_zero(ClassKeys& read, std::string_view key,
                                                 std::int64_t class_default, std::int64_t max);

// The type of recurrent states: that named by `mamba_ssm_cache_dtype` or `mamba_ssm_dtype`, else
// f32. Errors: kCorruptData for a type that is not float32, float16 or bfloat16.
[[nodiscard]] Result<Codec> read_state_codec(const Keys& keys);
// The codec of engines that keep states in 16 bits where the file names no type.
[[nodiscard]] Codec compact_codec(const Keys& keys, Codec state_codec);

// Mamba-2: heads x head_dim channels and n_groups pairs of B and C in the convolution.
struct Mamba2Shape {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t groups = 0;
  std::int64_t state_dim = 0;
  std::int64_t kernel = 0;
};
[[nodiscard]] Result<LayerSpec> mamba2_layer(const Keys& keys, const Mamba2Shape& shape);

// Mamba-1: `channels` independent recurrences of `state_dim` elements.
[[nodiscard]] Result<LayerSpec> mamba1_layer(const Keys& keys, std::int64_t channels,
                                             std::int64_t state_dim, std::int64_t kernel);

// KDA: q, k and v through short convolutions, one square state a head.
[[nodiscard]] Result<LayerSpec> kda_layer(const Keys& keys, std::int64_t heads,
                                          std::int64_t head_dim, std::int64_t kernel);

// Which layers run their own indexer (`indexer_types`, `index_topk_pattern`, `index_topk_freq`);
// the others reuse the selection of the last one before them. latent.cc.
[[nodiscard]] Result<std::vector<bool>> read_full_indexers(ClassKeys& read,
                                                           std::int64_t num_layers);

[[nodiscard]] inline std::uint32_t narrow(std::int64_t value) {
  return static_cast<std::uint32_t>(value);
}

}  // namespace kvarto
