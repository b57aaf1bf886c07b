// Recurrent layers (Mamba, gated DeltaNet, KDA, lightning attention) and short convolutions: a
// constant number of bytes per sequence, a fold over the whole prefix. Going back needs a snapshot.

#include "spec/architectures/parts.h"

namespace kvarto {
namespace {

Stream constant_stream(const char* name, const std::vector<StateField>& fields, Codec codec) {
  Stream stream;
  stream.name = name;
  for (const StateField& field : fields) {
    stream.fields.push_back(fixed_field(field.name, field.heads, field.width, codec));
  }
  stream.lifetime = {Lifetime::Kind::kConstant, 0};
  stream.truncate = {Truncate::Kind::kSnapshot, 0};
  stream.purpose = Purpose::kState;
  return stream;
}

}  // namespace

LayerSpec state_layer(const StateShape& shape) {
  LayerSpec layer;
  layer.architecture = shape.architecture;
  layer.query = shape.query;
  if (!shape.conv.empty()) {
    layer.streams.push_back(constant_stream("conv_state", shape.conv, shape.conv_codec));
    layer.streams.back().ring_rows = shape.conv_rows;
  }
  if (!shape.state.empty()) {
    layer.streams.push_back(constant_stream("state", shape.state, shape.state_codec));
    for (Field& field : layer.streams.back().fields) field.packed = shape.compact_state_codec;
  }
  return layer;
}

}  // namespace kvarto
