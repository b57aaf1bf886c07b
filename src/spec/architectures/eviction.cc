// Eviction (StreamingLLM, H2O, SnapKV): a policy keeps at most `budget` rows, chosen by rules that
// differ; what is cached does not. Positions are kept beside the rows, one a row for all heads,
// because a row's place no longer says its position.

#include "spec/architectures/parts.h"

namespace kvarto {

LayerSpec eviction_layer(const DenseShape& shape, std::uint64_t budget) {
  DenseShape dense = shape;
  dense.window = 0;
  LayerSpec layer = dense_layer(dense);
  layer.architecture = "eviction";
  Stream position;
  position.name = "position";
  position.fields = {fixed_field("position", 1, 1, Codec::kInt32)};
  position.shard = Shard::kReplicate;
  position.purpose = Purpose::kMetadata;
  layer.streams.push_back(std::move(position));
  for (Stream& stream : layer.streams) {
    stream.lifetime = {Lifetime::Kind::kKept, budget};
    stream.truncate = {Truncate::Kind::kResident, 0};
  }
  return layer;
}

}  // namespace kvarto
