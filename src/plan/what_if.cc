// The same model under other architectures, and models made of an architecture and numbers alone.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kvarto/plan.h"
#include "plan/architecture_word.h"
#include "spec/architectures.h"
#include "spec/keys.h"

namespace kvarto {
namespace {

// Heads of a DeepSeek-V3 before absorption, for latent models that do not state their own:
// qk_nope_head_dim 128 + qk_rope_head_dim 64, v_head_dim 128.
constexpr std::uint32_t kKnownFullQkDim = 192;
constexpr std::uint32_t kKnownFullVDim = 128;

const Stream* find_stream(const LayerGroup& group, std::string_view name) {
  const auto found = std::find_if(group.streams.begin(), group.streams.end(),
                                  [&](const Stream& stream) { return stream.name == name; });
  return found == group.streams.end() ? nullptr : &*found;
}

bool has_attention(const LayerGroup& group) {
  return group.query.q_heads != 0 &&
         std::any_of(group.streams.begin(), group.streams.end(),
                     [](const Stream& stream) { return stream.purpose == Purpose::kAttention; });
}

bool has_window(const LayerGroup& group) {
  const Stream* k = find_stream(group, "k");
  return k != nullptr && (k->lifetime.kind == Lifetime::Kind::kWindow ||
                          k->lifetime.kind == Lifetime::Kind::kChunk);
}

bool borrows(const LayerGroup& group) {
  return std::any_of(group.streams.begin(), group.streams.end(),
                     [](const Stream& stream) { return stream.owner_layer.has_value(); });
}

// Puts layers into the group of equal ones, whatever groups they came from.
void add_layers(std::vector<LayerGroup>& groups, const LayerSpec& layer,
                const std::vector<std::uint32_t>& indices) {
  const auto same = std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& group) {
    return group.architecture == layer.architecture && group.query == layer.query &&
           group.streams == layer.streams;
  });
  if (same == groups.end()) {
    groups.push_back({layer.architecture, layer.query, indices, layer.streams});
    return;
  }
  same->layers.insert(same->layers.end(), indices.begin(), indices.end());
  std::sort(same->layers.begin(), same->layers.end());
}

LayerHeads heads_of(const LayerGroup& group) {
  const QueryShape& query = group.query;
  LayerHeads heads{.q_heads = query.q_heads,
                   .kv_heads = 1,
                   .qk_dim = query.qk_dim,
                   .v_dim = query.v_dim,
                   .index_heads = query.index_heads,
                   .index_dim = query.index_dim};
  if (const Stream* k = find_stream(group, "k"); k != nullptr && !k->fields.empty()) {
    heads.kv_heads = k->fields.front().heads;
  }
  if (const Stream* latent = find_stream(group, "latent");
      latent != nullptr && !latent->fields.empty()) {
    // Expanded, a latent is K and V of every query head.
    heads.kv_heads = query.q_heads;
    heads.qk_dim = query.full_qk_dim != 0 ? query.full_qk_dim : kKnownFullQkDim;
    heads.v_dim = query.full_v_dim != 0 ? query.full_v_dim : kKnownFullVDim;
    heads.latent_dim = latent->fields.front().width;
    heads.rope_dim = latent->fields.size() > 1 ? latent->fields[1].width : 0;
  }
  return heads;
}

// The heads with what the caller overrides.
LayerHeads with_defaults(LayerHeads heads, const WhatIfDefaults& defaults) {
  if (defaults.q_heads != 0) heads.q_heads = defaults.q_heads;
  if (defaults.kv_heads != 0) heads.kv_heads = defaults.kv_heads;
  if (defaults.head_dim != 0) heads.qk_dim = heads.v_dim = defaults.head_dim;
  if (defaults.v_head_dim != 0) heads.v_dim = defaults.v_head_dim;
  return heads;
}

struct NamedLimit {
  std::string_view name;
  std::uint64_t value = 0;
  std::int64_t max = 0;
};

Status check_defaults(const WhatIfDefaults& d) {
  const NamedLimit limits[] = {
      {"query heads", d.q_heads, kMaxHeads},
      {"kv heads", d.kv_heads, kMaxHeads},
      {"head dim", d.head_dim, kMaxWidth},
      {"v head dim", d.v_head_dim, kMaxWidth},
      {"latent dim", d.latent_dim, kMaxWidth},
      {"rope dim", d.rope_dim, kMaxWidth},
      {"index heads", d.index_heads, kMaxHeads},
      {"index dim", d.index_dim, kMaxWidth},
      {"top-k", d.top_k, kMaxTokens},
      {"window", d.window, kMaxTokens},
      {"group", d.group, kMaxTokens},
  };
  for (const NamedLimit& limit : limits) {
    if (limit.value > static_cast<std::uint64_t>(limit.max)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} {}, expected at most {}", limit.name, limit.value, limit.max));
    }
  }
  if (d.ratio != 0 && !(d.ratio > 0.0 && d.ratio <= 1.0)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("ratio {}, expected above 0 and at most 1", d.ratio));
  }
  return {};
}

Status check_heads(const LayerHeads& heads, std::string_view word) {
  if (heads.kv_heads == 0 || heads.q_heads % heads.kv_heads != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("architecture {}: {} query heads and {} kv heads, expected a multiple",
                            word, heads.q_heads, heads.kv_heads));
  }
  return {};
}

// A model under another architecture, with the word's notes and canonical form.
struct Converted {
  ModelSpec model;
  std::string canonical;
  std::vector<std::string> notes;
};

Result<Converted> convert(const ModelSpec& model, const ArchitectureWord& word,
                          const WhatIfDefaults& defaults) {
  Converted converted{.model = model, .canonical = std::string(word.name), .notes = word.notes};
  std::size_t num_windowed = 0;
  std::size_t num_borrowing = 0;
  bool has_canonical = false;
  ModelSpec& made = converted.model;
  made.groups.clear();
  made.draft_groups.clear();
  for (const LayerGroup& group : model.groups) {
    if (!has_attention(group)) {
      made.groups.push_back(group);
      continue;
    }
    const LayerHeads heads = with_defaults(heads_of(group), defaults);
    KVARTO_CHECK_OK(check_heads(heads, word.name));
    KVARTO_TRY(const ArchitectureLayer layer, architecture_layer(word, heads, defaults));
    if (!has_canonical) converted.canonical = layer.canonical;
    has_canonical = true;
    if (has_window(group)) num_windowed += group.layers.size();
    if (borrows(group)) num_borrowing += group.layers.size();
    add_layers(made.groups, layer.layer, group.layers);
  }
  if (!has_canonical) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("architecture {}: the model has no attention layer, expected one", word.name));
  }
  if (num_windowed != 0) {
    converted.notes.push_back(fmt::format(
        "the windows of {} layers are not kept under another architecture", num_windowed));
  }
  if (num_borrowing != 0) {
    converted.notes.push_back(fmt::format(
        "{} layers that read rows of others own theirs under another architecture", num_borrowing));
  }
  return converted;
}

// `fp8_ds_mla` is a form of latent rows; streams without it take plain fp8 in the table.
CacheTypes types_for(const ModelSpec& model, const CacheTypes& types,
                     std::vector<std::string>& notes) {
  const bool is_packed = types.key == "fp8_ds_mla" || types.value == "fp8_ds_mla";
  if (!is_packed || with_types(model, types)) return types;
  CacheTypes plain = types;
  if (plain.key == "fp8_ds_mla") plain.key = "fp8";
  if (plain.value == "fp8_ds_mla") plain.value = "fp8";
  notes.emplace_back("fp8_ds_mla is a form of latent rows: K and V take fp8");
  return plain;
}

Result<WhatIf> row_of(Converted converted, PlanRequest request) {
  WhatIf row{.architecture = std::move(converted.canonical), .notes = std::move(converted.notes)};
  request.types = types_for(converted.model, request.types, row.notes);
  KVARTO_TRY(const Plan planned, plan(converted.model, request, {"ideal"}));
  const EnginePlan& ideal = planned.engines.front();
  for (const LedgerEntry& entry : ideal.ledger) {
    std::uint64_t& column = entry.stream == "k"   ? row.k_bytes
                            : entry.stream == "v" ? row.v_bytes
                                                  : row.other_bytes;
    column += entry.bytes;
  }
  row.total_bytes = ideal.bytes;
  row.read_bytes_per_step = planned.step.read_bytes;
  return row;
}

Result<WhatIf> row_of_word(const ModelSpec& model, const PlanRequest& request,
                           std::string_view word, const WhatIfDefaults& defaults) {
  KVARTO_TRY(const ArchitectureWord parsed, parse_architecture(word));
  KVARTO_TRY(Converted converted, convert(model, parsed, defaults));
  return row_of(std::move(converted), request);
}

// The geometry that a word stands for where nothing else is known.
LayerHeads best_known_heads(ArchitectureKind kind) {
  LayerHeads heads{.q_heads = 32, .kv_heads = 8, .qk_dim = 128, .v_dim = 128};  // Llama-3.1-8B
  switch (kind) {
    case ArchitectureKind::kMla:
    case ArchitectureKind::kDsa:
      heads.q_heads = 128;  // DeepSeek-V3, V3.2
      break;
    case ArchitectureKind::kCsa:
    case ArchitectureKind::kHca:
      heads.q_heads = 64;  // DeepSeek-V4-Flash
      break;
    default:
      break;
  }
  return heads;
}

// KV heads that a word itself fixes; nullopt if it leaves them open.
std::optional<std::uint64_t> fixed_kv_heads(const ArchitectureWord& word, const LayerHeads& heads) {
  switch (word.kind) {
    case ArchitectureKind::kMha:
      return heads.q_heads;
    case ArchitectureKind::kMqa:
    case ArchitectureKind::kMla:
    case ArchitectureKind::kDsa:
    case ArchitectureKind::kCsa:
    case ArchitectureKind::kHca:
      return 1;
    case ArchitectureKind::kGqa:
      return word.first != 0 ? std::optional(word.first) : std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<ModelSpec> with_architecture(const ModelSpec& model, std::string_view word,
                                    const WhatIfDefaults& defaults) {
  KVARTO_CHECK_OK(check_defaults(defaults));
  KVARTO_TRY(const ArchitectureWord parsed, parse_architecture(word));
  KVARTO_TRY(Converted converted, convert(model, parsed, defaults));
  for (std::string& note : converted.notes) converted.model.notes.push_back(std::move(note));
  return std::move(converted.model);
}

Result<std::vector<WhatIf>> what_if(const ModelSpec& model, const PlanRequest& request,
                                    const std::vector<std::string>& words,
                                    const WhatIfDefaults& defaults) {
  KVARTO_CHECK_OK(check_defaults(defaults));
  KVARTO_TRY(const WhatIf mha, row_of_word(model, request, "mha", defaults));
  std::vector<WhatIf> rows;
  for (const std::string& word : words) {
    KVARTO_TRY(WhatIf row, row_of_word(model, request, word, defaults));
    row.saving_against_mha =
        1.0 - static_cast<double>(row.total_bytes) / static_cast<double>(mha.total_bytes);
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<ModelSpec> geometry_model(std::string_view word, const WhatIfDefaults& defaults,
                                 std::uint32_t layers) {
  KVARTO_CHECK_OK(check_defaults(defaults));
  KVARTO_TRY(const ArchitectureWord parsed, parse_architecture(word));
  if (layers == 0 || layers > kMaxLayers) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} layers, expected 1 to {}", layers, kMaxLayers));
  }
  const LayerHeads heads = with_defaults(best_known_heads(parsed.kind), defaults);
  const auto fixed = fixed_kv_heads(parsed, heads);
  if (fixed && defaults.kv_heads != 0 && defaults.kv_heads != *fixed) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("architecture {} has {} kv heads, found {}", word, *fixed, defaults.kv_heads));
  }
  if (!fixed) KVARTO_CHECK_OK(check_heads(heads, parsed.name));
  KVARTO_TRY(ArchitectureLayer made, architecture_layer(parsed, heads, defaults));
  ModelSpec model;
  model.name = std::move(made.canonical);
  model.num_layers = layers;
  model.groups = group_layers(std::vector<LayerSpec>(layers, made.layer));
  model.notes = parsed.notes;
  return model;
}

}  // namespace kvarto
