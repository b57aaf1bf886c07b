#include "model_options.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>

#include "kvarto/model_file.h"

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

Status narrow(const char* name, const std::optional<std::uint64_t>& given, std::uint32_t* target) {
  if (!given.has_value()) return {};
  if (*given > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: found {}, expected at most 4294967295", name, *given));
  }
  *target = static_cast<std::uint32_t>(*given);
  return {};
}

std::string type_names() { return fmt::format("one of {}", fmt::join(cache_type_names(), " ")); }

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

}  // namespace

void declare_model(OptionSet& options, ModelOptions* asked) {
  options.positional("MODEL", &asked->model,
                     "a config.json, a folder holding one, or a name (see kvarto models); or none, "
                     "with --arch and its numbers");
  options.section("cache types");
  options.text("-ctk,--cache-type-k", "TYPE", &asked->key_type, "type of K: " + type_names());
  options.text("-ctv,--cache-type-v", "TYPE", &asked->value_type, "type of V, likewise");
  options.text("--kv-cache-dtype", "TYPE", &asked->both_types, "both types (default bf16)");
  options.text("--index-type", "TYPE", &asked->index_type,
               "type of index keys: bf16, fp8 or mxfp4 (default: the release's own)");
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

Result<ModelSpec> open_asked(const ModelOptions& asked) {
  if (asked.model.empty()) return geometry(asked);
  if (asked.layers.has_value()) {
    return fail(ErrorCode::kInvalidArgument, "--layers: a MODEL has its own layers");
  }
  Result<ModelSpec> model = open_model(asked.model);
  if (!model.has_value()) {
    Error error = std::move(model).error();
    if (error.code == ErrorCode::kNotFound && is_path(asked.model)) error.code = ErrorCode::kIo;
    return tl::unexpected<Error>(std::move(error));
  }
  if (asked.architecture.empty()) return model;
  KVARTO_TRY(const WhatIfDefaults defaults, what_if_defaults(asked));
  return with_architecture(*model, asked.architecture, defaults);
}

}  // namespace kvarto::cli
