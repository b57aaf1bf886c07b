// Tail-quantised cache (KIVI, arXiv 2402.02750): the newest `residual` tokens in f16, older K
// quantised per channel in groups of tokens, older V per token in groups of channels, each group
// with an f16 scale and an f16 minimum.

#include "spec/architectures/parts.h"

namespace kvarto {
namespace {

Stream tail_stream(const Stream& dense, const char* name, std::uint64_t tokens) {
  Stream stream = dense;
  stream.name = name;
  Field& field = stream.fields.front();
  field = fixed_field(name, field.heads, field.width, Codec::kF16);
  stream.lifetime = {Lifetime::Kind::kWindow, tokens};
  stream.truncate = {Truncate::Kind::kResident, 0};
  return stream;
}

// Rows that were quantised cannot go back to the tail.
Stream quantised_stream(const Stream& dense, const TailQuantisedShape& shape,
                        std::uint64_t tokens_per_row) {
  Stream stream = dense;
  Field& field = stream.fields.front();
  const auto width = static_cast<std::uint32_t>(field.width * tokens_per_row);
  field =
      fixed_field(field.name, field.heads, width, shape.bits == 2 ? Codec::kInt2 : Codec::kQ4_1);
  stream.tokens_per_row = tokens_per_row;
  stream.birth_delay_tokens = shape.residual;
  stream.born_from = "tail_" + dense.name;
  stream.truncate = {Truncate::Kind::kResident, 0};
  return stream;
}

}  // namespace

LayerSpec tail_quantised_layer(const TailQuantisedShape& shape) {
  DenseShape unwindowed = shape.dense;
  unwindowed.window = 0;
  const LayerSpec dense = dense_layer(unwindowed);
  const Stream& k = dense.streams[0];
  const Stream& v = dense.streams[1];
  LayerSpec layer;
  layer.architecture = "tail_quantised";
  layer.query = dense.query;
  // K leaves the tail a whole group at a time, so up to group - 1 older tokens wait there.
  layer.streams = {quantised_stream(k, shape, shape.group), quantised_stream(v, shape, 1),
                   tail_stream(k, "tail_k", shape.residual + shape.group - 1),
                   tail_stream(v, "tail_v", shape.residual)};
  return layer;
}

}  // namespace kvarto
