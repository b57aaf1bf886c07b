// Sums over a model's streams that tests compare with published numbers: slope and fixed bytes.

#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "kvarto/model_spec.h"

namespace kvarto {

// Bytes a token of all streams that never die: layers x row bytes / tokens a row.
inline double slope_of(const ModelSpec& model) {
  double slope = 0;
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) {
      if (stream.owner_layer || stream.lifetime.kind != Lifetime::Kind::kNever) continue;
      slope += static_cast<double>(group.layers.size() * row_bytes(stream).total()) /
               static_cast<double>(stream.tokens_per_row);
    }
  }
  return slope;
}

// Bytes a sequence of all streams that do: windows and chunks when full, constant states.
inline std::uint64_t fixed_of(const ModelSpec& model) {
  constexpr std::uint64_t kLong = std::uint64_t{1} << 40;  // tokens; beyond every window
  std::uint64_t fixed = 0;
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) {
      if (stream.owner_layer || stream.lifetime.kind == Lifetime::Kind::kNever) continue;
      if (stream.lifetime.kind == Lifetime::Kind::kStep) continue;
      fixed += group.layers.size() * row_bytes(stream).total() * peak_rows(stream, kLong);
    }
  }
  return fixed;
}

inline ModelSpec typed(const ModelSpec& model, const CacheTypes& types = {}) {
  auto result = with_types(model, types);
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  return result ? *result : model;
}

inline ModelSpec model_of(const std::vector<LayerSpec>& layers) {
  ModelSpec model;
  model.num_layers = static_cast<std::uint32_t>(layers.size());
  model.groups = group_layers(layers);
  return model;
}

// The first stream of that name; an empty one if there is none.
inline Stream stream_named(const ModelSpec& model, std::string_view name) {
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) {
      if (stream.name == name) return stream;
    }
  }
  ADD_FAILURE() << "no stream " << name;
  return {};
}

// "never all any replicate": the four words of a stream.
inline std::string words(const Stream& stream) {
  return to_string(stream.lifetime) + " " + to_string(stream.access) + " " +
         to_string(stream.truncate) + (stream.shard == Shard::kReplicate ? " replicate" : " head");
}

}  // namespace kvarto
