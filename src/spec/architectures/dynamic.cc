// Dynamic sparse attention: a predictor says in every step which share of the blocks is read. Not
// DSA, which is DeepSeek sparse attention.
//
// The predictor's state is, for each block of rows, the f32 sum and sum of squares of its keys; its
// result is one bit a block and KV head, alive for the step (docs/terms.md).

#include "spec/architectures/parts.h"

namespace kvarto {

LayerSpec dynamic_layer(const DynamicShape& shape) {
  LayerSpec layer = dense_layer(shape.dense);
  layer.architecture = "dynamic";
  for (Stream& stream : layer.streams) {
    stream.access = {.kind = Access::Kind::kRatio, .count = shape.block, .ratio = shape.ratio};
  }
  const std::uint32_t heads = shape.dense.kv_heads;
  Stream stats;
  stats.name = "key_stats";
  stats.fields = {fixed_field("sum", heads, shape.dense.qk_dim, Codec::kF32),
                  fixed_field("sum_of_squares", heads, shape.dense.qk_dim, Codec::kF32)};
  stats.tokens_per_row = shape.block;
  stats.born_from = "k";
  stats.purpose = Purpose::kMetadata;

  // One row holds the bits of 8 blocks: a whole byte a head.
  Stream mask;
  mask.name = "mask";
  mask.fields = {fixed_field("mask", heads, 8, Codec::kBit)};
  mask.tokens_per_row = 8 * shape.block;
  mask.born_from = "key_stats";
  mask.lifetime = {Lifetime::Kind::kStep, 0};
  mask.purpose = Purpose::kMask;

  layer.streams.push_back(std::move(stats));
  layer.streams.push_back(std::move(mask));
  return layer;
}

}  // namespace kvarto
