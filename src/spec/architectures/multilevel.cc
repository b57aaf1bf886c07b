// Multi-level attention, two levels: recent tokens at full resolution, and one aggregate for every
// `group` tokens before them. Not MLA, which is multi-head latent attention.
//
// A query at position t with window w reads level 0 from s = floor(max(0, t + 1 - w) / group) *
// group on, and the aggregates of the groups before s (docs/terms.md).

#include "spec/architectures/parts.h"

namespace kvarto {
namespace {

Stream aggregate_stream(const MultilevelShape& shape, const Stream& level0, const char* name) {
  Stream stream;
  stream.name = name;
  stream.fields = level0.fields;
  stream.fields.front().name = name;
  stream.tokens_per_row = shape.group;
  stream.born_from = level0.name;
  stream.shard = level0.shard;
  if (shape.dense.window == 0) {
    stream.access = not_read();  // level 0 covers every token
  } else {
    stream.access.skip_tokens = shape.dense.window;
  }
  if (shape.ttl != 0) {
    stream.lifetime = {Lifetime::Kind::kTtl, shape.ttl};
    stream.truncate = {Truncate::Kind::kResident, 0};
  }
  return stream;
}

}  // namespace

LayerSpec multilevel_layer(const MultilevelShape& shape) {
  LayerSpec layer = dense_layer(shape.dense);
  layer.architecture = "multilevel";
  const std::uint64_t window = shape.dense.window;
  for (Stream& stream : layer.streams) {
    if (window == 0) continue;
    // The oldest visible group of level 0 begins up to group - 1 tokens before the window.
    stream.lifetime.tokens = window + shape.group - 1;
    stream.access.align_rows = shape.group;
  }
  layer.streams.push_back(aggregate_stream(shape, layer.streams[0], "k1"));
  layer.streams.push_back(aggregate_stream(shape, layer.streams[1], "v1"));
  return layer;
}

}  // namespace kvarto
