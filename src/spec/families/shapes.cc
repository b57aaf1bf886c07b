#include "spec/families/shapes.h"

#include <fmt/format.h>

namespace kvarto {
namespace {

// Widths of states are products of counts from a file: each at most kMaxWidth, so that three of
// them fit 64 bits; the product must fit a field.
Result<std::uint32_t> product(const Keys& keys, std::string_view key, std::int64_t a,
                              std::int64_t b) {
  const std::int64_t value = a * b;
  if (value > std::int64_t{UINT32_MAX}) {
    return keys.bad(key, fmt::format("{} elements a head", value),
                    fmt::format("at most {}", UINT32_MAX));
  }
  return narrow(value);
}

// hidden size / heads; a remainder is a contradiction.
Result<std::int64_t> divided_head_dim(const Keys& keys, std::int64_t hidden_size,
                                      std::int64_t heads) {
  if (hidden_size == 0) return keys.missing("head_dim", "an integer, or hidden_size to derive it");
  if (hidden_size % heads != 0) {
    return keys.bad("num_attention_heads", fmt::format("{}", heads),
                    fmt::format("a divisor of hidden_size {}, or a head_dim", hidden_size));
  }
  return hidden_size / heads;
}

}  // namespace

Result<DenseShape> read_attention(ClassKeys& read, std::int64_t hidden_size,
                                  const AttentionDefaults& defaults) {
  const Keys& keys = read.keys();
  KVARTO_TRY(const auto heads, read.count({"num_attention_heads"}, defaults.heads, kMaxHeads));
  KVARTO_TRY(auto kv_heads, read.optional_count({"num_key_value_heads"}, kMaxHeads));
  if (kv_heads == 0) {
    kv_heads = defaults.kv_heads != 0 ? defaults.kv_heads : heads;
    if (defaults.kv_heads != 0) {
      read.note_default("num_key_value_heads", fmt::format("{}", kv_heads));
    }
  }
  if (heads % kv_heads != 0) {
    return keys.bad("num_key_value_heads", fmt::format("{}", kv_heads),
                    fmt::format("a divisor of num_attention_heads {}", heads));
  }
  KVARTO_TRY(auto head_dim, read.optional_count({"head_dim"}, kMaxWidth));
  KVARTO_TRY(const auto other_dim, read.optional_count({"attention_head_dim"}, kMaxWidth));
  if (head_dim != 0 && other_dim != 0 && head_dim != other_dim) {
    return keys.bad("attention_head_dim", fmt::format("{}", other_dim),
                    fmt::format("{} as in head_dim", head_dim));
  }
  if (head_dim == 0) head_dim = other_dim;
  if (head_dim == 0 && defaults.head_dim != 0) {
    head_dim = defaults.head_dim;
    read.note_default("head_dim", fmt::format("{}", head_dim));
  }
  if (head_dim == 0) {
    KVARTO_TRY(head_dim, divided_head_dim(keys, hidden_size, heads));
  }
  DenseShape shape;
  shape.q_heads = narrow(heads);
  shape.kv_heads = narrow(kv_heads);
  shape.qk_dim = narrow(head_dim);
  shape.v_dim = narrow(head_dim);
  return shape;
}

Result<std::int64_t> count_or_zero(ClassKeys& read, std::string_view key,
                                   std::int64_t class_default, std::int64_t max) {
  KVARTO_TRY(const auto number, read.keys().integer({key}, 0, max));
  if (number) return *number;
  read.note_default(key, fmt::format("{}", class_default));
  return class_default;
}

Result<LatentShape> read_latent(ClassKeys& read, std::int64_t hidden_size,
                                const LatentDefaults& defaults) {
  KVARTO_TRY(const auto heads, read.count({"num_attention_heads"}, defaults.heads, kMaxHeads));
  KVARTO_TRY(const auto latent, read.count({"kv_lora_rank"}, defaults.latent_dim, kMaxWidth));
  KVARTO_TRY(const auto rope,
             count_or_zero(read, "qk_rope_head_dim", defaults.rope_dim, kMaxWidth));
  KVARTO_TRY(const auto nope, read.count({"qk_nope_head_dim"}, defaults.nope_dim, kMaxWidth));
  KVARTO_TRY(auto v_dim, read.optional_count({"v_head_dim"}, kMaxWidth));
  if (v_dim == 0 && defaults.v_dim != 0) {
    v_dim = defaults.v_dim;
    read.note_default("v_head_dim", fmt::format("{}", v_dim));
  }
  if (v_dim == 0) {
    KVARTO_TRY(v_dim, divided_head_dim(read.keys(), hidden_size, heads));
  }
  LatentShape shape;
  shape.q_heads = narrow(heads);
  shape.latent_dim = narrow(latent);
  shape.rope_dim = narrow(rope);
  shape.nope_dim = narrow(nope);
  shape.v_dim = narrow(v_dim);
  return shape;
}

Result<IndexerShape> read_indexer(ClassKeys& read, const IndexerDefaults& defaults) {
  KVARTO_TRY(const auto heads, read.count({"index_n_heads"}, defaults.heads, kMaxHeads));
  KVARTO_TRY(const auto dim, read.count({"index_head_dim"}, defaults.dim, kMaxWidth));
  KVARTO_TRY(const auto top_k, read.count({"index_topk"}, defaults.top_k, kMaxTokens));
  IndexerShape indexer;
  indexer.heads = narrow(heads);
  indexer.dim = narrow(dim);
  indexer.top_k = static_cast<std::uint64_t>(top_k);
  return indexer;
}

Result<Codec> read_state_codec(const Keys& keys) {
  for (std::string_view key : {"mamba_ssm_cache_dtype", "mamba_ssm_dtype"}) {
    KVARTO_TRY(const auto type, keys.string(key));
    const std::string name = type.value_or("auto");
    if (name == "auto") continue;
    if (name == "float32") return Codec::kF32;
    if (name == "float16") return Codec::kF16;
    if (name == "bfloat16") return Codec::kBF16;
    return keys.bad(key, describe(*keys.find(key)), "float32, float16 or bfloat16");
  }
  return Codec::kF32;
}

Codec compact_codec(const Keys& keys, Codec state_codec) {
  const bool is_named = keys.has("mamba_ssm_cache_dtype") || keys.has("mamba_ssm_dtype");
  return is_named ? state_codec : Codec::kBF16;
}

Result<LayerSpec> mamba2_layer(const Keys& keys, const Mamba2Shape& shape) {
  StateShape state;
  state.architecture = "mamba2";
  state.query = {.q_heads = narrow(shape.heads),
                 .qk_dim = narrow(shape.state_dim),
                 .v_dim = narrow(shape.head_dim)};
  KVARTO_TRY(const auto x, product(keys, "conv_kernel", shape.kernel - 1, shape.head_dim));
  KVARTO_TRY(const auto b_c, product(keys, "conv_kernel", shape.kernel - 1, 2 * shape.state_dim));
  KVARTO_TRY(const auto width, product(keys, "state_size", shape.head_dim, shape.state_dim));
  if (shape.kernel > 1) {
    state.conv = {{"x", narrow(shape.heads), x}, {"b_c", narrow(shape.groups), b_c}};
    state.conv_rows = narrow(shape.kernel - 1);
  }
  state.state = {{"state", narrow(shape.heads), width}};
  KVARTO_TRY(state.state_codec, read_state_codec(keys));
  state.compact_state_codec = compact_codec(keys, state.state_codec);
  return state_layer(state);
}

Result<LayerSpec> mamba1_layer(const Keys& keys, std::int64_t channels, std::int64_t state_dim,
                               std::int64_t kernel) {
  StateShape state;
  state.architecture = "mamba";
  state.query = {.q_heads = narrow(channels), .qk_dim = narrow(state_dim), .v_dim = 1};
  if (kernel > 1) state.conv = {{"x", narrow(channels), narrow(kernel - 1)}};
  state.conv_rows = narrow(kernel - 1);
  state.state = {{"state", narrow(channels), narrow(state_dim)}};
  KVARTO_TRY(state.state_codec, read_state_codec(keys));
  state.compact_state_codec = compact_codec(keys, state.state_codec);
  return state_layer(state);
}

Result<LayerSpec> kda_layer(const Keys& keys, std::int64_t heads, std::int64_t head_dim,
                            std::int64_t kernel) {
  StateShape state;
  state.architecture = "kda";
  state.query = {.q_heads = narrow(heads), .qk_dim = narrow(head_dim), .v_dim = narrow(head_dim)};
  KVARTO_TRY(const auto conv, product(keys, "linear_attn_config", kernel - 1, head_dim));
  KVARTO_TRY(const auto width, product(keys, "linear_attn_config", head_dim, head_dim));
  state.conv_rows = narrow(kernel - 1);
  if (kernel > 1) {
    state.conv = {
        {"q", narrow(heads), conv}, {"k", narrow(heads), conv}, {"v", narrow(heads), conv}};
  }
  state.state = {{"state", narrow(heads), width}};
  KVARTO_TRY(state.state_codec, read_state_codec(keys));
  return state_layer(state);
}

}  // namespace kvarto
