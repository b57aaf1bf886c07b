// Small models for the tests of the cache: each stream kind once, rows of a few elements.

#pragma once

#include <string>

#include "kvarto/kv_cache.h"

namespace kvarto {

inline Stream plain_stream(std::string name, Lifetime lifetime = {},
                           std::uint64_t tokens_per_row = 1) {
  Stream stream;
  stream.name = std::move(name);
  stream.fields = {{.name = "x", .heads = 1, .width = 2, .codec = Codec::kF32}};
  stream.lifetime = lifetime;
  stream.tokens_per_row = tokens_per_row;
  if (lifetime.kind == Lifetime::Kind::kWindow || lifetime.kind == Lifetime::Kind::kChunk ||
      lifetime.kind == Lifetime::Kind::kTtl) {
    stream.truncate = {Truncate::Kind::kResident, 0};
  }
  return stream;
}

inline Stream state_stream(std::string name, Truncate truncate) {
  Stream stream = plain_stream(std::move(name), {Lifetime::Kind::kConstant, 0});
  stream.purpose = Purpose::kState;
  stream.truncate = truncate;
  return stream;
}

inline ModelSpec model_of(std::vector<Stream> streams, std::uint32_t num_layers = 1) {
  ModelSpec model;
  model.num_layers = num_layers;
  LayerGroup group;
  group.architecture = "test";
  for (std::uint32_t layer = 0; layer < num_layers; ++layer) group.layers.push_back(layer);
  group.streams = std::move(streams);
  model.groups = {group};
  return model;
}

// K and V of `heads` x `dim`.
inline ModelSpec dense_model(std::uint32_t heads, std::uint32_t dim, Codec codec,
                             std::uint32_t num_layers = 1) {
  Stream k = plain_stream("k");
  k.fields = {{.name = "k", .heads = heads, .width = dim, .role = CodecRole::kKey, .codec = codec}};
  Stream v = plain_stream("v");
  v.fields = {
      {.name = "v", .heads = heads, .width = dim, .role = CodecRole::kValue, .codec = codec}};
  return model_of({k, v}, num_layers);
}

inline RowSource source_of(const std::vector<float>& values) {
  return {Codec::kF32, std::as_bytes(std::span(values))};
}

}  // namespace kvarto
