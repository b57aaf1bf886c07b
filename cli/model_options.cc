#include "model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <string_view>

#include "architecture_options.h"
#include "kvarto/model_file.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Whether a MODEL that does not exist was meant as a file.
bool is_path(std::string_view model) {
  return model.find('/') != std::string_view::npos || ends_with(model, ".json") ||
         ends_with(model, ".gguf") || ends_with(model, ".safetensors");
}

Result<ModelSpec> geometry(const ModelOptions& asked) {
  if (asked.architecture.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "no MODEL: name a file, a folder or a model of `kvarto models`, or give --arch");
  }
  KVARTO_TRY(const WhatIfDefaults defaults, what_if_defaults(asked));
  std::uint32_t layers = 1;
  KVARTO_CHECK_OK(narrow("--layers", asked.layers, &layers));
  return geometry_model(asked.architecture, defaults, layers);
}

std::vector<GivenNumber> given_numbers(const ModelOptions& asked) {
  return {{"q-heads", asked.q_heads},
          {"kv-heads", asked.kv_heads},
          {"head-dim", asked.head_dim},
          {"v-head-dim", asked.v_head_dim},
          {"latent-dim", asked.latent_dim},
          {"rope-dim", asked.rope_dim},
          {"top-k", asked.top_k},
          {"window", asked.window},
          {"group", asked.group},
          {"ratio", asked.ratio},
          {"index-heads", asked.index_heads},
          {"index-dim", asked.index_dim}};
}

// The words of the architectures that are asked for beside or instead of the model's own.
std::vector<std::string> words_of(const ModelOptions& asked,
                                  const std::vector<std::string>& what_if) {
  std::vector<std::string> words = what_if;
  if (!asked.architecture.empty()) words.insert(words.begin(), asked.architecture);
  return words;
}

// Numbers that contradict a word, or that nothing uses.
Status check_numbers(const ModelOptions& asked, const std::vector<std::string>& words) {
  if (asked.model.empty()) return check_stated_numbers(words, given_numbers(asked));
  if (asked.layers.has_value()) {
    return fail(ErrorCode::kInvalidArgument, "--layers: a MODEL has its own layers");
  }
  return check_open_numbers(words, given_numbers(asked));
}

bool has_index(const std::vector<LayerGroup>& groups) {
  return std::any_of(groups.begin(), groups.end(), [](const LayerGroup& group) {
    return std::any_of(group.streams.begin(), group.streams.end(),
                       [](const Stream& stream) { return stream.purpose == Purpose::kIndexer; });
  });
}

// The type of index keys needs index keys, in the model or in an architecture of the table.
Status check_index_type(const ModelOptions& asked, const ModelSpec& model,
                        const std::vector<std::string>& what_if) {
  if (asked.index_type.empty() || has_index(model.groups) || has_index(model.draft_groups)) {
    return {};
  }
  KVARTO_TRY(const WhatIfDefaults defaults, what_if_defaults(asked));
  for (const std::string& word : what_if) {
    KVARTO_TRY(const ModelSpec other, with_architecture(model, word, defaults));
    if (has_index(other.groups)) return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--index-type: found {}, but {} has no index keys", asked.index_type,
                          model.name));
}

Result<ModelSpec> open_input(const std::string& name) {
  try {
    Result<ModelSpec> model = open_model(name);
    if (!model.has_value()) {
      return tl::unexpected<Error>(as_input_error(name, std::move(model).error()));
    }
    return model;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kIo, fmt::format("{}: not enough memory to read it", name));
  }
}

Result<ModelSpec> open_or_make(const ModelOptions& asked) {
  if (asked.model.empty()) return geometry(asked);
  KVARTO_TRY(ModelSpec model, open_input(asked.model));
  if (asked.architecture.empty()) return model;
  KVARTO_TRY(const WhatIfDefaults defaults, what_if_defaults(asked));
  return with_architecture(model, asked.architecture, defaults);
}

}  // namespace

Error as_input_error(const std::string& model, Error error) {
  std::error_code problem;
  const bool is_file = is_path(model) || std::filesystem::exists(model, problem);
  // Memory that does not suffice to read a file is no fault of what was asked.
  if (error.code == ErrorCode::kOutOfMemory || (error.code == ErrorCode::kNotFound && is_file)) {
    error.code = ErrorCode::kIo;
  }
  if (error.code == ErrorCode::kUnsupported) error.code = ErrorCode::kCorruptData;
  return error;
}

Result<std::vector<LayerTypes>> layer_types(const ModelOptions& asked) {
  return parse_layer_types(asked.types_by_layer, asked.index_type);
}

Status check_latent_options(const ModelOptions& asked, const ModelSpec& model) {
  bool has_latents = false;
  bool is_absorbed = false;  // heads of K and V stand behind the rows
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) {
      for (const Field& field : stream.fields) {
        if (field.role == CodecRole::kValue) return {};
        has_latents = has_latents || field.role == CodecRole::kKey;
      }
    }
    is_absorbed = is_absorbed || group.query.full_qk_dim != 0;
  }
  const CacheTypes types = cache_types(asked);
  if (has_latents && !asked.value_type.empty() && types.key != types.value) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--cache-type-v: found {}, expected {}, the type of K: the rows of {} "
                            "are K and V at once",
                            types.value, types.key, model.name));
  }
  KVARTO_TRY(const std::vector<LayerTypes> by_layer, layer_types(asked));
  for (const LayerTypes& some : by_layer) {
    if (!has_latents || some.types.key == some.types.value) continue;
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--kv-types-by-layer: found {}/{}, expected one type: the rows of {} are "
                    "K and V at once",
                    some.types.key, some.types.value, model.name));
  }
  if (has_latents && is_absorbed && asked.head_dim.has_value()) {
    return refuse_latent_head_dim(asked.architecture);
  }
  return {};
}

void declare_model(OptionSet& options, ModelOptions* asked, TypeUse use) {
  options.positional(
      "MODEL", &asked->model,
      "a config.json, a folder holding one, a .gguf, a .safetensors (or its index), or a "
      "name (see kvarto models); or none, with --arch and its numbers");
  options.section("cache types");
  options.text("-ctk,--cache-type-k", "TYPE", &asked->key_type, "type of K: " + type_names(use));
  options.text("-ctv,--cache-type-v", "TYPE", &asked->value_type, "type of V, likewise");
  options.text("--kv-cache-dtype,--kv-dtype", "TYPE", &asked->both_types,
               "both types (default bf16)");
  options.list("--kv-types-by-layer", "LAYERS=TYPE", &asked->types_by_layer,
               "types of some layers alone: 0-3=f16, or 7=q8_0/q4_0 for K and V; several with "
               "commas");
  options.text("--index-type", "TYPE", &asked->index_type,
               "type of index keys: f32, f16, bf16, fp8 or another type with scales (default: the "
               "release's own)");
  options.section("another architecture");
  options.text("--arch", "A", &asked->architecture,
               "the model's heads and layers under: mha mqa gqa[:G] mla[:L+R] dsa[:K] csa hca "
               "multilevel[:g[:w]] dynamic[:ratio] quest[:budget] moba nsa swa[:w]");
  options.count("--layers", 1, &asked->layers, "layers, without a MODEL (default 1)");
  options.count("--q-heads", 1, &asked->q_heads, "query heads");
  options.count("--kv-heads", 1, &asked->kv_heads, "KV heads");
  options.count("--head-dim", 1, &asked->head_dim, "elements of a head of K (and of V)");
  options.count("--v-head-dim", 1, &asked->v_head_dim, "elements of a head of V");
  options.count("--latent-dim", 1, &asked->latent_dim, "elements of a latent");
  options.count("--rope-dim", 0, &asked->rope_dim, "elements of its position part");
  options.count("--top-k", 1, &asked->top_k, "rows that an indexer chooses");
  options.count("--window", 1, &asked->window, "tokens of a window");
  options.count("--group", 1, &asked->group, "tokens of a group (multilevel)");
  options.fraction("--ratio", &asked->ratio, "share of the rows that are read (dynamic)");
  options.count("--index-heads", 1, &asked->index_heads, "heads of an indexer");
  options.count("--index-dim", 1, &asked->index_dim, "elements of an index key");
}

CacheTypes cache_types(const ModelOptions& asked) {
  CacheTypes types;
  if (!asked.both_types.empty()) types.key = types.value = asked.both_types;
  if (!asked.key_type.empty()) types.key = asked.key_type;
  if (!asked.value_type.empty()) types.value = asked.value_type;
  types.index = asked.index_type;
  return types;
}

Result<WhatIfDefaults> what_if_defaults(const ModelOptions& asked) {
  WhatIfDefaults defaults;
  KVARTO_CHECK_OK(narrow("--q-heads", asked.q_heads, &defaults.q_heads));
  KVARTO_CHECK_OK(narrow("--kv-heads", asked.kv_heads, &defaults.kv_heads));
  KVARTO_CHECK_OK(narrow("--head-dim", asked.head_dim, &defaults.head_dim));
  KVARTO_CHECK_OK(narrow("--v-head-dim", asked.v_head_dim, &defaults.v_head_dim));
  KVARTO_CHECK_OK(narrow("--latent-dim", asked.latent_dim, &defaults.latent_dim));
  KVARTO_CHECK_OK(narrow("--rope-dim", asked.rope_dim, &defaults.rope_dim));
  KVARTO_CHECK_OK(narrow("--index-heads", asked.index_heads, &defaults.index_heads));
  KVARTO_CHECK_OK(narrow("--index-dim", asked.index_dim, &defaults.index_dim));
  defaults.top_k = asked.top_k.value_or(0);
  defaults.window = asked.window.value_or(0);
  defaults.group = asked.group.value_or(0);
  defaults.ratio = asked.ratio.value_or(0);
  return defaults;
}

Result<ModelSpec> open_asked(const ModelOptions& asked, const std::vector<std::string>& what_if) {
  KVARTO_CHECK_OK(check_numbers(asked, words_of(asked, what_if)));
  KVARTO_TRY(ModelSpec model, open_or_make(asked));
  KVARTO_CHECK_OK(check_index_type(asked, model, what_if));
  return model;
}

}  // namespace kvarto::cli
