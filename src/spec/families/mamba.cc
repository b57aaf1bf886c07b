// Mamba and its hybrids with attention: Mamba-1 (mamba, falcon_mamba, jamba), Mamba-2 (mamba2,
// nemotron_h, bamba, granitemoehybrid, falcon_h1, zamba2).
//
// Keys and defaults: transformers, src/transformers/models/<model type>.

#include <fmt/format.h>

#include <array>

#include "spec/families/all.h"
#include "spec/families/layer_list.h"
#include "spec/families/shapes.h"

namespace kvarto {
namespace {

using Kinds = std::vector<LayerContent>;

constexpr std::array kWords = {
    LayerWord{"mamba", LayerContent::kState},
    LayerWord{"linear_attention", LayerContent::kState},
    LayerWord{"attention", LayerContent::kAttention},
    LayerWord{"full_attention", LayerContent::kAttention},
    LayerWord{"hybrid", LayerContent::kBoth},
    LayerWord{"mlp", LayerContent::kNone},
    LayerWord{"moe", LayerContent::kNone},
};
constexpr std::array kLetters = {
    LayerWord{"M", LayerContent::kState}, LayerWord{"*", LayerContent::kAttention},
    LayerWord{"-", LayerContent::kNone}, LayerWord{"E", LayerContent::kNone}};

// Names of the Mamba-2 keys of one type, first alias first, and the defaults of its class.
struct Mamba2Keys {
  std::string_view heads, head_dim, groups, state_dim, kernel, expand;
  std::int64_t default_heads = 0;
  std::int64_t default_head_dim = 0;  // 0 = inner size / heads
  std::int64_t default_groups = 0;
  std::int64_t default_state_dim = 0;
  std::string_view inner;  // a key that states the inner size; "" = expand x hidden size
  std::int64_t default_inner = 0;
};

constexpr Mamba2Keys kMamba2Names = {
    "num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", "expand", 128, 64, 8,
    128,         "",         0};
constexpr Mamba2Keys kNemotronNames = {"mamba_num_heads",
                                       "mamba_head_dim",
                                       "n_groups",
                                       "ssm_state_size",
                                       "conv_kernel",
                                       "",
                                       128,
                                       64,
                                       8,
                                       128,
                                       "",
                                       0};
constexpr Mamba2Keys kBambaNames = {"mamba_n_heads",
                                    "mamba_d_head",
                                    "mamba_n_groups",
                                    "mamba_d_state",
                                    "mamba_d_conv",
                                    "mamba_expand",
                                    128,
                                    0,
                                    1,
                                    256,
                                    "",
                                    0};
constexpr Mamba2Keys kFalconNames = {"mamba_n_heads",
                                     "mamba_d_head",
                                     "mamba_n_groups",
                                     "mamba_d_state",
                                     "mamba_d_conv",
                                     "mamba_expand",
                                     128,
                                     0,
                                     1,
                                     256,
                                     "mamba_d_ssm",
                                     1024};
constexpr Mamba2Keys kZambaNames = {"n_mamba_heads",
                                    "mamba_headdim",
                                    "mamba_ngroups",
                                    "mamba_d_state",
                                    "mamba_d_conv",
                                    "mamba_expand",
                                    8,
                                    0,
                                    1,
                                    64,
                                    "",
                                    0};

// "auto" stands for the quotient of inner size and heads.
bool is_auto(const Keys& keys, std::string_view key) {
  const Value* value = keys.find(key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
  return text != nullptr && *text == "auto";
}

// The inner size by the keys that state it; 0 where the type takes heads x head dim as they are.
Result<std::int64_t> read_inner_size(ClassKeys& read, const Mamba2Keys& names,
                                     std::int64_t hidden) {
  if (!names.inner.empty()) {
    KVARTO_TRY(const auto inner, read.optional_count({names.inner}, kMaxWidth));
    if (inner != 0) return inner;
    // An explicit null means expand x hidden size, an absent key the class's default.
    if (!read.keys().is_null(names.inner)) {
      read.note_default(names.inner, fmt::format("{}", names.default_inner));
      return names.default_inner;
    }
  }
  if (names.expand.empty()) return 0;
  KVARTO_TRY(const auto expand, read.count({names.expand}, 2, kMaxKernel));
  return expand * hidden;
}

Result<LayerSpec> read_mamba2(ClassKeys& read, const Mamba2Keys& names, std::int64_t hidden) {
  const Keys& keys = read.keys();
  Mamba2Shape shape;
  KVARTO_TRY(shape.heads, read.count({names.heads}, names.default_heads, kMaxHeads));
  KVARTO_TRY(shape.groups, read.count({names.groups}, names.default_groups, kMaxHeads));
  KVARTO_TRY(shape.state_dim, read.count({names.state_dim}, names.default_state_dim, kMaxWidth));
  KVARTO_TRY(shape.kernel, read.count({names.kernel}, 4, kMaxKernel));
  KVARTO_TRY(const auto inner, read_inner_size(read, names, hidden));
  if (inner != 0 && inner % shape.heads != 0) {
    return keys.bad(names.heads, fmt::format("{}", shape.heads),
                    fmt::format("a divisor of the inner size {}", inner));
  }
  const bool is_derived =
      is_auto(keys, names.head_dim) || (names.default_head_dim == 0 && !keys.has(names.head_dim));
  if (is_derived) {
    shape.head_dim = inner / shape.heads;
  } else {
    KVARTO_TRY(shape.head_dim, read.count({names.head_dim}, names.default_head_dim, kMaxWidth));
  }
  if (inner != 0 && shape.head_dim * shape.heads != inner) {
    return keys.bad(
        names.head_dim, fmt::format("{}", shape.head_dim),
        fmt::format("{}, the inner size {} / {} heads", inner / shape.heads, inner, shape.heads));
  }
  return mamba2_layer(keys, shape);
}

LayerSpec both(const LayerSpec& attention, const LayerSpec& state) {
  LayerSpec layer = attention;
  layer.architecture += "+" + state.architecture;
  layer.streams.insert(layer.streams.end(), state.streams.begin(), state.streams.end());
  return layer;
}

std::vector<LayerSpec> arrange(const Kinds& kinds, const LayerSpec& attention,
                               const LayerSpec& state) {
  std::vector<LayerSpec> layers;
  for (LayerContent kind : kinds) {
    switch (kind) {
      case LayerContent::kAttention:
      case LayerContent::kSparse:
        layers.push_back(attention);
        break;
      case LayerContent::kState:
        layers.push_back(state);
        break;
      case LayerContent::kBoth:
        layers.push_back(both(attention, state));
        break;
      case LayerContent::kNone:
        layers.emplace_back();
        break;
    }
  }
  return layers;
}

struct FrameDefaults {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t context = 0;  // 0 = optional
};

Result<ClassKeys::Frame> read_frame(ClassKeys& read, const FrameDefaults& defaults) {
  ClassKeys::Frame frame;
  if (defaults.layers != 0) {
    KVARTO_TRY(frame.num_layers, read.count({"num_hidden_layers"}, defaults.layers, kMaxLayers));
  }
  KVARTO_TRY(frame.hidden_size, read.count({"hidden_size"}, defaults.hidden, kMaxWidth));
  if (defaults.context != 0) {
    KVARTO_TRY(frame.max_context,
               read.count({"max_position_embeddings"}, defaults.context, kMaxTokens));
  } else {
    KVARTO_TRY(frame.max_context, read.optional_count({"max_position_embeddings"}, kMaxTokens));
  }
  return frame;
}

// Nemotron-H: a letter or a word a layer, under the names of three generations of files.
Result<std::optional<Kinds>> read_pattern(const Keys& keys, std::string_view letters,
                                          std::string_view words) {
  KVARTO_TRY(auto kinds, read_layer_words(keys, words, 0, kWords));
  if (kinds) return kinds;
  return read_layer_letters(keys, letters, 0, kLetters);
}

}  // namespace

Result<ModelSpec> read_nemotron_h(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "NemotronHConfig");
  KVARTO_TRY(ClassKeys::Frame frame, read_frame(read, {0, 4096, 4096}));
  const std::string_view words = keys.has("layer_types") ? "layer_types" : "layers_block_type";
  KVARTO_TRY(const auto kinds, read_pattern(keys, "hybrid_override_pattern", words));
  if (!kinds) return keys.missing("hybrid_override_pattern", "a letter a layer");
  frame.num_layers = static_cast<std::int64_t>(kinds->size());
  KVARTO_TRY(const auto stated, read.optional_count({"num_hidden_layers"}, kMaxLayers));
  if (stated != 0 && stated != frame.num_layers) {
    return keys.bad("num_hidden_layers", fmt::format("{}", stated),
                    fmt::format("{}, the length of the layers' list", frame.num_layers));
  }
  KVARTO_TRY(const DenseShape dense, read_attention(read, frame.hidden_size,
                                                    {.heads = 32, .kv_heads = 8, .head_dim = 128}));
  KVARTO_TRY(const LayerSpec state, read_mamba2(read, kNemotronNames, frame.hidden_size));
  const LayerSpec attention = dense_layer(dense);
  KVARTO_TRY(const auto drafts, read_num_drafts(keys));
  KVARTO_TRY(auto block,
             read_pattern(keys, "mtp_hybrid_override_pattern", "mtp_layers_block_type"));
  if (!block) block = {LayerContent::kAttention, LayerContent::kNone};
  if (drafts * static_cast<std::int64_t>(block->size()) > kMaxLayers) {
    return keys.bad("num_nextn_predict_layers", fmt::format("{}", drafts),
                    fmt::format("at most {} layers in all", kMaxLayers));
  }
  std::vector<LayerSpec> draft_layers;
  for (std::int64_t i = 0; i < drafts; ++i) {
    for (LayerSpec& layer : arrange(*block, attention, state)) {
      draft_layers.push_back(std::move(layer));
    }
  }
  return read.model(frame, arrange(*kinds, attention, state), draft_layers, root);
}

Result<ModelSpec> read_mamba2_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "Mamba2Config");
  KVARTO_TRY(const ClassKeys::Frame frame, read_frame(read, {64, 4096, 0}));
  KVARTO_TRY(const LayerSpec state, read_mamba2(read, kMamba2Names, frame.hidden_size));
  return read.model(
      frame, std::vector<LayerSpec>(static_cast<std::size_t>(frame.num_layers), state), {}, root);
}

Result<ModelSpec> read_mamba_family(const Keys& keys, const Keys& root) {
  const bool is_falcon = effective_model_type(keys, root) == "falcon_mamba";
  ClassKeys read(keys, is_falcon ? "FalconMambaConfig" : "MambaConfig");
  KVARTO_TRY(const ClassKeys::Frame frame, read_frame(read, {32, 768, 0}));
  KVARTO_TRY(const auto expand, read.count({"expand"}, 2, kMaxKernel));
  KVARTO_TRY(const auto state_dim, read.count({"state_size"}, 16, kMaxWidth));
  KVARTO_TRY(const auto kernel, read.count({"conv_kernel"}, 4, kMaxKernel));
  KVARTO_TRY(const LayerSpec state,
             mamba1_layer(keys, expand * frame.hidden_size, state_dim, kernel));
  return read.model(
      frame, std::vector<LayerSpec>(static_cast<std::size_t>(frame.num_layers), state), {}, root);
}

Result<ModelSpec> read_jamba(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "JambaConfig");
  KVARTO_TRY(const ClassKeys::Frame frame, read_frame(read, {32, 4096, 262'144}));
  KVARTO_TRY(const DenseShape dense,
             read_attention(read, frame.hidden_size, {.heads = 32, .kv_heads = 8}));
  KVARTO_TRY(const auto period, read.count({"attn_layer_period"}, 8, kMaxLayers));
  KVARTO_TRY(const auto offset, count_or_zero(read, "attn_layer_offset", 4, kMaxLayers));
  if (offset >= period) {
    return keys.bad("attn_layer_offset", fmt::format("{}", offset),
                    fmt::format("less than attn_layer_period {}", period));
  }
  KVARTO_TRY(const auto expand, read.count({"mamba_expand"}, 2, kMaxKernel));
  KVARTO_TRY(const auto state_dim, read.count({"mamba_d_state"}, 16, kMaxWidth));
  KVARTO_TRY(const auto kernel, read.count({"mamba_d_conv"}, 4, kMaxKernel));
  KVARTO_TRY(const LayerSpec state,
             mamba1_layer(keys, expand * frame.hidden_size, state_dim, kernel));
  Kinds kinds;
  for (std::int64_t i = 0; i < frame.num_layers; ++i) {
    kinds.push_back(i % period == offset ? LayerContent::kAttention : LayerContent::kState);
  }
  return read.model(frame, arrange(kinds, dense_layer(dense), state), {}, root);
}

Result<ModelSpec> read_bamba(const Keys& keys, const Keys& root) {
  const bool is_granite = effective_model_type(keys, root) == "granitemoehybrid";
  ClassKeys read(keys, is_granite ? "GraniteMoeHybridConfig" : "BambaConfig");
  KVARTO_TRY(const ClassKeys::Frame frame,
             read_frame(read, {32, 4096, is_granite ? 2048 : 262'144}));
  KVARTO_TRY(const DenseShape dense, read_attention(read, frame.hidden_size,
                                                    {.heads = 32, .kv_heads = is_granite ? 0 : 8}));
  KVARTO_TRY(const LayerSpec state, read_mamba2(read, kBambaNames, frame.hidden_size));
  const auto count = static_cast<std::size_t>(frame.num_layers);
  const std::string_view words = keys.has("layer_types") ? "layer_types" : "layers_block_type";
  KVARTO_TRY(auto kinds, read_layer_words(keys, words, count, kWords));
  if (!kinds) {
    KVARTO_TRY(const auto attention, read_layer_numbers(keys, "attn_layer_indices", count, 0));
    if (!attention) {
      read.note_default(is_granite ? "layer_types" : "attn_layer_indices", "no attention layers");
    }
    kinds.emplace(count, LayerContent::kState);
    if (attention) {
      for (std::uint32_t layer : *attention) (*kinds)[layer] = LayerContent::kAttention;
    }
  }
  return read.model(frame, arrange(*kinds, dense_layer(dense), state), {}, root);
}

Result<ModelSpec> read_falcon_h1(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "FalconH1Config");
  KVARTO_TRY(const ClassKeys::Frame frame, read_frame(read, {32, 4096, 8192}));
  KVARTO_TRY(const DenseShape dense,
             read_attention(read, frame.hidden_size, {.heads = 32, .kv_heads = 8}));
  KVARTO_TRY(const LayerSpec state, read_mamba2(read, kFalconNames, frame.hidden_size));
  const Kinds kinds(static_cast<std::size_t>(frame.num_layers), LayerContent::kBoth);
  return read.model(frame, arrange(kinds, dense_layer(dense), state), {}, root);
}

Result<ModelSpec> read_zamba2(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, "Zamba2Config");
  KVARTO_TRY(const ClassKeys::Frame frame, read_frame(read, {54, 2560, 4096}));
  // The shared transformer block reads the hidden state beside the embedding: twice as wide.
  KVARTO_TRY(const DenseShape dense, read_attention(read, 2 * frame.hidden_size, {.heads = 32}));
  KVARTO_TRY(const LayerSpec state, read_mamba2(read, kZambaNames, frame.hidden_size));
  const auto count = static_cast<std::size_t>(frame.num_layers);
  KVARTO_TRY(auto kinds, read_layer_words(keys, "layers_block_type", count, kWords));
  if (!kinds) {
    if (count != 54) {
      return keys.missing("layers_block_type", fmt::format("a list of {} entries", count));
    }
    read.note_default("layers_block_type", "the 54 layers of Zamba2-2.7B");
    kinds.emplace(count, LayerContent::kState);
    for (std::size_t layer : {6u, 12u, 18u, 24u, 30u, 36u, 42u, 47u, 51u}) {
      (*kinds)[layer] = LayerContent::kBoth;
    }
  }
  return read.model(frame, arrange(*kinds, dense_layer(dense), state), {}, root);
}

}  // namespace kvarto
