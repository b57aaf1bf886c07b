// What a model's cache consists of: layers, and the streams of each layer.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/result.h"
#include "kvarto/stream.h"

namespace kvarto {

// The query side of one layer: what the arithmetic of a step needs beside the streams.
struct QueryShape {
  std::uint32_t q_heads = 0;
  std::uint32_t qk_dim = 0;       // width of one score's dot product as executed
  std::uint32_t v_dim = 0;        // width of one head's output before any projection
  std::uint32_t index_heads = 0;  // lightning indexer; 0 = none
  std::uint32_t index_dim = 0;
  // One head's K and V before a latent absorbed them (MLA: nope + rope, and v); 0 = as executed.
  std::uint32_t full_qk_dim = 0;
  std::uint32_t full_v_dim = 0;
  friend bool operator==(const QueryShape&, const QueryShape&) = default;
};

// One layer before grouping.
struct LayerSpec {
  std::string architecture;  // "gqa", "swa", "mla", ... (glossary of docs/terms.md)
  QueryShape query;
  std::vector<Stream> streams;  // empty = the layer caches nothing (e.g. an MLP-only layer)
};

// Layers with equal architecture, query shape and streams.
struct LayerGroup {
  std::string architecture;
  QueryShape query;
  std::vector<std::uint32_t> layers;  // ascending
  std::vector<Stream> streams;
};

// Extra layers that exist in the file but that an engine allocates only on request
// (multi-token prediction blocks, draft heads).
struct ModelSpec {
  std::string name;
  std::string model_type;
  std::uint32_t num_layers = 0;   // transformer layers, draft layers not counted
  std::uint64_t max_context = 0;  // tokens; 0 = not stated
  std::uint32_t hidden_size = 0;  // 0 = not stated
  std::uint32_t vocab_size = 0;   // 0 = not stated
  std::vector<LayerGroup> groups;
  // Multi-token-prediction blocks; allocated only by engines that run them.
  std::vector<LayerGroup> draft_groups;
  // What the reader assumed or took from a default; each a sentence for the user.
  std::vector<std::string> notes;
  // True if the model type has no family file and was read by its keys alone.
  bool is_unknown_type = false;
  // Bytes of the weights, where the file says so; 0 = unknown.
  std::uint64_t weight_bytes = 0;
};

// Groups equal layers, in order of first appearance. Layers without streams form groups too.
[[nodiscard]] std::vector<LayerGroup> group_layers(const std::vector<LayerSpec>& layers);

// Names of the architectures of a model, without repetition, in layer order.
[[nodiscard]] std::vector<std::string> architecture_names(const ModelSpec& model);

// The cache types that a user asks for, by name as on the command line: "auto" (the release's own
// format), "bf16", "q8_0", "fp8_ds_mla", ...
//
// `index` is the type of index keys; "fp8" means e4m3 with one f32 scale per 128 elements there.
// "" = the release's own, save that fields which follow a wide key (Field::follows_wide_key) take
// a 16- or 32-bit type of K.
struct CacheTypes {
  std::string key = "bf16";
  std::string value = "bf16";
  std::string index;
  friend bool operator==(const CacheTypes&, const CacheTypes&) = default;
};

// Returns the model with the codec of every field set. Errors: kInvalidArgument for an unknown
// type, for a type that cannot hold a field's width (block formats need whole groups), and for
// `fp8_ds_mla` on a model without such rows.
[[nodiscard]] Result<ModelSpec> with_types(ModelSpec model, const CacheTypes& types);

// The same for some layers alone, after with_types: groups are divided where their layers differ. A
// layer that borrows a stream has the type of its owner. Errors: those of with_types, and
// kInvalidArgument for a layer that no group has.
[[nodiscard]] Result<ModelSpec> with_layer_types(ModelSpec model, const CacheTypes& types,
                                                 std::span<const std::uint32_t> layers);

// All names that CacheTypes accepts.
[[nodiscard]] std::vector<std::string_view> cache_type_names();

}  // namespace kvarto
