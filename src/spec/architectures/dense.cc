// MHA, GQA and MQA: one row of K and one of V for each token; with a window or chunk the rows die.

#include "spec/architectures.h"

namespace kvarto {
namespace {

std::string dense_name(const DenseShape& shape) {
  if (shape.window != 0) return "swa";
  if (shape.chunk != 0) return "chunked";
  if (shape.kv_heads == 1 && shape.q_heads > 1) return "mqa";
  return shape.kv_heads == shape.q_heads ? "mha" : "gqa";
}

Stream dense_stream(const DenseShape& shape, const char* name, std::uint32_t width,
                    CodecRole role) {
  Stream stream;
  stream.name = name;
  stream.fields = {{.name = name, .heads = shape.kv_heads, .width = width, .role = role}};
  stream.owner_layer = shape.owner_layer;
  if (shape.window != 0) {
    stream.lifetime = {Lifetime::Kind::kWindow, shape.window};
    stream.access = {Access::Kind::kWindow, shape.window, 1.0};
    stream.truncate = {Truncate::Kind::kResident, 0};
  } else if (shape.chunk != 0) {
    // All resident rows of the current chunk are visible: access stays `all`.
    stream.lifetime = {Lifetime::Kind::kChunk, shape.chunk};
    stream.truncate = {Truncate::Kind::kResident, 0};
  }
  return stream;
}

}  // namespace

LayerSpec dense_layer(const DenseShape& shape) {
  LayerSpec layer;
  layer.architecture = dense_name(shape);
  layer.query.q_heads = shape.q_heads;
  layer.query.qk_dim = shape.qk_dim;
  layer.query.v_dim = shape.v_dim;
  layer.streams.push_back(dense_stream(shape, "k", shape.qk_dim, CodecRole::kKey));
  layer.streams.push_back(dense_stream(shape, "v", shape.v_dim, CodecRole::kValue));
  return layer;
}

}  // namespace kvarto
