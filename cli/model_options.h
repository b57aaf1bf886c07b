// The options that name a model, its cache types and another architecture; the same in every
// command that takes MODEL.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvarto/model_spec.h"
#include "kvarto/plan.h"
#include "kvarto/result.h"
#include "options.h"
#include "type_options.h"

namespace kvarto::cli {

struct ModelOptions {
  std::string model;  // "" = a geometry: an architecture and numbers alone
  std::string key_type;
  std::string value_type;
  std::string both_types;
  std::string index_type;
  std::vector<std::string> types_by_layer;
  std::string architecture;
  std::optional<std::uint64_t> layers;
  std::optional<std::uint64_t> q_heads, kv_heads, head_dim, v_head_dim;
  std::optional<std::uint64_t> latent_dim, rope_dim, index_heads, index_dim;
  std::optional<std::uint64_t> top_k, window, group;
  std::optional<double> ratio;
};

void declare_model(OptionSet& options, ModelOptions* asked, TypeUse use);

// The types asked for. `--cache-type-k` and `--cache-type-v` go before `--kv-cache-dtype`.
[[nodiscard]] CacheTypes cache_types(const ModelOptions& asked);
// Those of some layers alone. Errors: kInvalidArgument for words that are none.
[[nodiscard]] Result<std::vector<LayerTypes>> layer_types(const ModelOptions& asked);
// Refuses what rows that are K and V at once do not have: a type of V of its own, and a head dim.
// Errors: kInvalidArgument.
[[nodiscard]] Status check_latent_options(const ModelOptions& asked, const ModelSpec& model);
// Errors: kInvalidArgument for numbers beyond 32 bits.
[[nodiscard]] Result<WhatIfDefaults> what_if_defaults(const ModelOptions& asked);
// Opens the model, under `--arch` if given; without a model, builds one from `--arch` and its
// numbers. `what_if` are the words of the architectures that will be compared with it. Errors:
// those of open_model(), with_architecture() and geometry_model(); a missing file is kIo, an
// unknown name kNotFound; kInvalidArgument for a number or type that neither the model nor a word
// uses.
[[nodiscard]] Result<ModelSpec> open_asked(const ModelOptions& asked,
                                           const std::vector<std::string>& what_if = {});

// An error about MODEL, or a file that belongs to it, as the tool reports it: what could not be
// read is bad input, whatever the reason, if a file or folder is there or was meant. Elsewhere
// kUnsupported is about what an option asks for.
[[nodiscard]] Error as_input_error(const std::string& model, Error error);

}  // namespace kvarto::cli
