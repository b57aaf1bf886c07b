#include "formats/tensor_geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/printable.h"

namespace kvarto {
namespace {

// What the rows of a projection are (of one head's where it is stored head by head).
enum class Role : std::uint8_t {
  kKey,
  kValue,
  kFused,        // query, key and value
  kLatent,       // latent and rope
  kLatentAlone,  // DeepSeek-V4: one vector of nope and rope
  kExpansion,    // from the latent to every head's K (without rope) and V
  kSplitKey,     // from the latent to K, head by head; its rows are the latent's
  kSplitValue,   // from the latent to V, head by head
  kIndexKey,
};

struct RoleName {
  std::string_view suffix;  // of the tensor's name, behind the layer's number
  Role role{};
};

// Sources: GGUF tensor names of llama.cpp (gguf-py constants); module names of transformers.
constexpr std::array kRoles = {
    RoleName{"attn_k.weight", Role::kKey},
    RoleName{"attn_v.weight", Role::kValue},
    RoleName{"attn_qkv.weight", Role::kFused},
    RoleName{"attn_kv_a_mqa.weight", Role::kLatent},
    RoleName{"attn_kv_b.weight", Role::kExpansion},
    RoleName{"attn_kv.weight", Role::kLatentAlone},
    RoleName{"attn_k_b.weight", Role::kSplitKey},
    RoleName{"attn_v_b.weight", Role::kSplitValue},
    RoleName{"indexer.attn_k.weight", Role::kIndexKey},
    RoleName{"self_attn.k_proj.weight", Role::kKey},
    RoleName{"self_attn.v_proj.weight", Role::kValue},
    RoleName{"self_attn.qkv_proj.weight", Role::kFused},
    RoleName{"self_attn.W_pack.weight", Role::kFused},
    RoleName{"self_attn.query_key_value.weight", Role::kFused},
    RoleName{"self_attention.query_key_value.weight", Role::kFused},
    RoleName{"attention.query_key_value.weight", Role::kFused},
    RoleName{"attention.wqkv.weight", Role::kFused},
    RoleName{"attn.Wqkv.weight", Role::kFused},
    RoleName{"norm_attn_norm.attn.Wqkv.weight", Role::kFused},
    RoleName{"attn.c_attn.weight", Role::kFused},
    RoleName{"self_attn.kv_a_proj_with_mqa.weight", Role::kLatent},
    RoleName{"self_attn.kv_b_proj.weight", Role::kExpansion},
    RoleName{"self_attn.indexer.wk.weight", Role::kIndexKey},
};

// Words before the number of a layer, and words that mark another model than the language model.
constexpr std::array<std::string_view, 4> kLayerWords = {"blk", "layers", "h", "blocks"};
constexpr std::array<std::string_view, 9> kOtherModels = {"visual",       "vision", "vision_tower",
                                                          "vision_model", "audio",  "audio_tower",
                                                          "encoder",      "mtp",    "talker"};

struct LayerTensor {
  std::uint64_t layer = 0;
  std::string_view suffix;
};

// "model.layers.7.self_attn.k_proj.weight" -> layer 7, "self_attn.k_proj.weight".
std::optional<LayerTensor> split_name(std::string_view name) {
  bool is_number_next = false;
  while (true) {
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos) return std::nullopt;
    const std::string_view word = name.substr(0, dot);
    name.remove_prefix(dot + 1);
    if (is_number_next) {
      constexpr std::size_t kMaxDigits = 6;
      const bool is_number = !word.empty() && word.size() <= kMaxDigits &&
                             word.find_first_not_of("0123456789") == std::string_view::npos;
      if (!is_number) return std::nullopt;
      std::uint64_t layer = 0;
      for (const char digit : word) layer = layer * 10 + static_cast<std::uint64_t>(digit - '0');
      return LayerTensor{layer, name};
    }
    if (std::find(kOtherModels.begin(), kOtherModels.end(), word) != kOtherModels.end()) {
      return std::nullopt;
    }
    is_number_next = std::find(kLayerWords.begin(), kLayerWords.end(), word) != kLayerWords.end();
  }
}

const Stream* find_stream(const LayerGroup& group, std::string_view name) {
  const auto stream = std::find_if(group.streams.begin(), group.streams.end(),
                                   [&](const Stream& s) { return s.name == name; });
  return stream == group.streams.end() ? nullptr : &*stream;
}

struct Expectation {
  std::uint64_t rows = 0;
  std::string reason;
};

Expectation heads_of(const Stream& stream, const char* what) {
  const Field& field = stream.fields.front();
  return {std::uint64_t{field.heads} * field.width,
          fmt::format("{} {} heads x {}", field.heads, what, field.width)};
}

std::uint64_t width_of(const Stream& stream) {
  std::uint64_t width = 0;
  for (const Field& field : stream.fields) width += field.width;
  return width;
}

std::optional<Expectation> expected_fused(const LayerGroup& group) {
  const Stream* k = find_stream(group, "k");
  const Stream* v = find_stream(group, "v");
  if (k == nullptr || v == nullptr) return std::nullopt;
  const Expectation keys = heads_of(*k, "KV");
  const Expectation values = heads_of(*v, "KV");
  const std::uint64_t queries = std::uint64_t{group.query.q_heads} * group.query.qk_dim;
  return Expectation{queries + keys.rows + values.rows,
                     fmt::format("{} query heads x {} + {} + {} for K and V", group.query.q_heads,
                                 group.query.qk_dim, keys.rows, values.rows)};
}

std::optional<Expectation> expected_expansion(const LayerGroup& group, const Stream& latent) {
  const QueryShape& query = group.query;
  const std::uint64_t rope = width_of(latent) - latent.fields.front().width;
  if (query.full_qk_dim < rope || query.full_v_dim == 0) return std::nullopt;
  const std::uint64_t nope = query.full_qk_dim - rope;
  return Expectation{
      query.q_heads * (nope + query.full_v_dim),
      fmt::format("{} heads x ({} for K + {} for V)", query.q_heads, nope, query.full_v_dim)};
}

std::optional<Expectation> expected_rows(const LayerGroup& group, Role role) {
  if (role == Role::kFused) return expected_fused(group);
  const char* name = role == Role::kKey           ? "k"
                     : role == Role::kValue       ? "v"
                     : role == Role::kIndexKey    ? "index_key"
                     : role == Role::kLatentAlone ? "window_kv"
                                                  : "latent";
  const Stream* stream = find_stream(group, name);
  // What reads another layer's rows need not have the projections of its own.
  if (stream == nullptr || stream->owner_layer) return std::nullopt;
  if (role == Role::kExpansion) return expected_expansion(group, *stream);
  if (role == Role::kSplitKey) return Expectation{stream->fields.front().width, "the latent"};
  if (role == Role::kSplitValue) {
    if (group.query.full_v_dim == 0) return std::nullopt;
    return Expectation{group.query.full_v_dim, "one head's V"};
  }
  if (role == Role::kKey || role == Role::kValue) return heads_of(*stream, "KV");
  std::string reason;
  for (const Field& field : stream->fields) {
    reason += fmt::format("{}{} {}", reason.empty() ? "" : " + ", field.name, field.width);
  }
  return Expectation{width_of(*stream), std::move(reason)};
}

}  // namespace

LayerLookup::LayerLookup(const ModelSpec& spec) {
  for (const auto* groups : {&spec.groups, &spec.draft_groups}) {
    for (const LayerGroup& group : *groups) {
      for (const std::uint32_t layer : group.layers) {
        if (layer >= groups_.size()) groups_.resize(std::size_t{layer} + 1, nullptr);
        groups_[layer] = &group;
      }
    }
  }
}

const LayerGroup* LayerLookup::find(std::uint64_t layer) const {
  return layer < groups_.size() ? groups_[static_cast<std::size_t>(layer)] : nullptr;
}

Status check_tensor(const TensorShape& tensor, const LayerLookup& layers, std::string_view where) {
  if (tensor.num_dims != 2 && tensor.num_dims != 3) return {};
  const auto parts = split_name(tensor.name);
  if (!parts) return {};
  const auto role = std::find_if(kRoles.begin(), kRoles.end(),
                                 [&](const RoleName& r) { return r.suffix == parts->suffix; });
  const LayerGroup* group = layers.find(parts->layer);
  if (role == kRoles.end() || group == nullptr) return {};
  const bool is_by_head = role->role == Role::kSplitKey || role->role == Role::kSplitValue;
  if (tensor.num_dims != (is_by_head ? 3u : 2u)) return {};
  const auto expected = expected_rows(*group, role->role);
  if (!expected || tensor.rows == expected->rows) return {};
  // GPT-2's weights are stored [inputs, outputs]; its relatives of the same name are not.
  if (role->suffix == "attn.c_attn.weight" && tensor.columns == expected->rows) return {};
  return fail(ErrorCode::kCorruptData,
              fmt::format("{}: tensor \"{}\": found {} rows, expected {} ({})", where,
                          printable(tensor.name), tensor.rows, expected->rows, expected->reason));
}

}  // namespace kvarto
