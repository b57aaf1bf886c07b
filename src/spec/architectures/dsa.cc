// DSA, DeepSeek sparse attention: MLA whose rows are read by top-k. An indexer scores one small
// key of every token (or of every pool of tokens); nothing is dropped, so the cache grows.
//
// Source: DeepSeek-V3.2-Exp inference/model.py and kernel.py: keys of 128 e4m3 and one f32 scale.

#include "spec/architectures/parts.h"

namespace kvarto {

Stream index_key_stream(std::uint32_t dim, std::uint64_t tokens_per_row, Codec native) {
  Stream stream;
  stream.name = "index_key";
  stream.fields.push_back(native_field("index_key", 1, dim, CodecRole::kIndex, native));
  stream.tokens_per_row = tokens_per_row;
  stream.shard = Shard::kReplicate;
  stream.purpose = Purpose::kIndexer;
  stream.always_scales_in_footer = true;
  return stream;
}

LayerSpec dsa_layer(const LatentShape& shape, const IndexerShape& indexer) {
  LayerSpec layer = mla_layer(shape);
  layer.architecture = "dsa";
  Stream& latent = layer.streams.front();
  latent.access = top_k(indexer.top_k);
  // Keys of pools choose pools; the tokens of the last one, whose key is not there yet, are read.
  latent.access.align_rows = indexer.pool;
  latent.selection_layer = indexer.selection_layer;
  if (indexer.selection_layer) return layer;
  layer.query.index_heads = indexer.heads;
  layer.query.index_dim = indexer.dim;
  layer.streams.push_back(index_key_stream(indexer.dim, indexer.pool, Codec::kFp8Scaled128));
  return layer;
}

}  // namespace kvarto
