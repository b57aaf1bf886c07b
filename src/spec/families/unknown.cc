// A model type without a family: read by the keys that most families share, with notes that say
// what was assumed.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "spec/families/all.h"
#include "spec/families/dense_keys.h"

namespace kvarto {
namespace {

// Keys of architectures whose rows do not follow from head counts. Planning such a model as plain
// attention would be wrong without anyone noticing.
constexpr std::array<std::string_view, 16> kForeignKeys = {
    "compress_ratios",         "compress_rates",       "linear_attn_config",
    "linear_num_value_heads",  "linear_num_key_heads", "full_attention_interval",
    "hybrid_override_pattern", "layers_block_type",    "mamba_d_state",
    "mamba_num_heads",         "ssm_state_size",       "state_size",
    "attn_type_list",          "conv_L_cache",         "ssm_cfg",
    "attn_layer_indices"};

Status check_foreign_keys(const Keys& keys, const std::string& type) {
  for (const std::string_view key : kForeignKeys) {
    if (!keys.has(key)) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: model type \"{}\" is unknown and {} says that its layers are not "
                            "plain attention",
                            keys.name("model_type"), type, key));
  }
  KVARTO_TRY(const auto is_pair, keys.boolean("is_encoder_decoder"));
  if (is_pair.value_or(false)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: model type \"{}\" is unknown and an encoder with a decoder, "
                            "expected a decoder alone",
                            keys.name("is_encoder_decoder"), type));
  }
  return {};
}

// MLA by its keys, and DSA where an indexer is described too.
Result<ModelSpec> read_latent(ClassKeys& read, const DenseType& type, const Keys& root) {
  const Keys& keys = read.keys();
  KVARTO_TRY(const ClassKeys::Frame frame, read_frame(read, type));
  KVARTO_TRY(const auto heads, keys.required_integer({"num_attention_heads"}, 1, kMaxHeads));
  KVARTO_TRY(const auto latent, keys.required_integer({"kv_lora_rank"}, 1, kMaxWidth));
  KVARTO_TRY(const auto rope, keys.required_integer({"qk_rope_head_dim"}, 0, kMaxWidth));
  KVARTO_TRY(const auto nope, read.optional_count({"qk_nope_head_dim"}, kMaxWidth));
  KVARTO_TRY(const auto value, read.optional_count({"v_head_dim"}, kMaxWidth));
  KVARTO_TRY(const auto top_k, read.optional_count({"index_topk"}, kMaxTokens));
  LatentShape shape;
  shape.q_heads = static_cast<std::uint32_t>(heads);
  shape.latent_dim = static_cast<std::uint32_t>(latent);
  shape.rope_dim = static_cast<std::uint32_t>(rope);
  shape.nope_dim = static_cast<std::uint32_t>(nope);
  shape.v_dim = static_cast<std::uint32_t>(value);
  LayerSpec layer = mla_layer(shape);
  if (top_k != 0) {
    KVARTO_TRY(const auto index_heads, keys.required_integer({"index_n_heads"}, 1, kMaxHeads));
    KVARTO_TRY(const auto index_dim, keys.required_integer({"index_head_dim"}, 1, kMaxWidth));
    IndexerShape indexer;
    indexer.heads = static_cast<std::uint32_t>(index_heads);
    indexer.dim = static_cast<std::uint32_t>(index_dim);
    indexer.top_k = static_cast<std::uint64_t>(top_k);
    layer = dsa_layer(shape, indexer);
  }
  const std::vector<LayerSpec> layers(static_cast<std::size_t>(frame.num_layers), layer);
  return read.model(frame, layers, {}, root);
}

// `sliding_window` without a word about which layers have it: every layer, unless the file switches
// windows off or gives a pattern.
Result<DenseType> guess_windows(ClassKeys& read, DenseType type) {
  const Keys& keys = read.keys();
  if (keys.has("layer_types") || !keys.has("sliding_window")) return type;
  KVARTO_TRY(const auto is_used, keys.boolean("use_sliding_window"));
  if (is_used) {
    type.windows.kind =
        keys.has("max_window_layers") ? WindowRule::Kind::kFromLayer : WindowRule::Kind::kIfUsed;
    return type;
  }
  if (keys.has("sliding_window_pattern") || keys.has("_sliding_window_pattern")) {
    type.windows.kind = WindowRule::Kind::kPattern;
    return type;
  }
  read.note("sliding_window: took it for every layer, as no key says which layers have it");
  type.windows.kind = WindowRule::Kind::kEvery;
  return type;
}

Result<ModelSpec> read_plain(ClassKeys& read, const DenseType& type, const Keys& root) {
  KVARTO_TRY(const DenseGeometry geometry, read_dense_geometry(read, type));
  KVARTO_TRY(const DenseType guessed, guess_windows(read, type));
  return read_uniform_layers(read, guessed, geometry, root);
}

}  // namespace

Result<ModelSpec> read_unknown_family(const Keys& keys, const Keys& root) {
  const std::string type_name = effective_model_type(keys, root);
  KVARTO_CHECK_OK(check_foreign_keys(keys, type_name));
  const bool is_latent = keys.has("kv_lora_rank");
  const DenseType type{.model_type = "unknown", .config_class = ""};
  ClassKeys read(keys, "");
  KVARTO_TRY(ModelSpec spec,
             is_latent ? read_latent(read, type, root) : read_plain(read, type, root));
  const std::string subject = type_name.empty()
                                  ? std::string("model_type is absent")
                                  : fmt::format("model_type \"{}\" is unknown", type_name);
  spec.notes.insert(
      spec.notes.begin(),
      fmt::format("{}: read as {}; check the layers below against the model's own description",
                  subject,
                  keys.has("kv_lora_rank") && keys.has("index_topk")
                      ? "sparse latent attention (DSA) from kv_lora_rank, qk_rope_head_dim and "
                        "index_topk"
                  : is_latent ? "latent attention (MLA) from kv_lora_rank and qk_rope_head_dim"
                              : "plain attention from num_hidden_layers, num_attention_heads, "
                                "num_key_value_heads and head_dim"));
  spec.is_unknown_type = true;
  return spec;
}

}  // namespace kvarto
