// Block-sparse attention: all of K and V is kept, and a step reads whole blocks chosen by small
// summaries.
//
// Sources: Quest arXiv 2406.10774 (minimum and maximum of K in each page of 16), MoBA arXiv
// 2502.13189 (mean of K), NSA arXiv 2502.11089 (compressed K and V every 16 tokens, attended
// themselves), MiniMax-M3 and Qwen3.8 (one index key for one or several tokens).

#include "spec/architectures/parts.h"

namespace kvarto {
namespace {

using Summary = BlockSparseShape::Summary;

// NSA's compression stride (tokens): blocks of 32 tokens every 16.
constexpr std::uint64_t kNsaStride = 16;

const char* block_sparse_name(Summary summary) {
  switch (summary) {
    case Summary::kMinMax:
      return "quest";
    case Summary::kMean:
      return "moba";
    case Summary::kNsa:
      return "nsa";
    case Summary::kIndexKey:
      return "block_sparse";
  }
  return "";
}

Stream summary_stream(const BlockSparseShape& shape) {
  const DenseShape& dense = shape.dense;
  Stream stream;
  stream.name = "block_summary";
  stream.tokens_per_row = shape.block;
  stream.born_from = "k";
  stream.purpose = Purpose::kMetadata;
  switch (shape.summary) {
    case Summary::kMinMax:
      stream.fields = {summary_field("min", dense.kv_heads, dense.qk_dim),
                       summary_field("max", dense.kv_heads, dense.qk_dim)};
      break;
    case Summary::kMean:
      stream.fields = {summary_field("mean", dense.kv_heads, dense.qk_dim)};
      break;
    case Summary::kNsa:
      stream.fields = {
          native_field("k", dense.kv_heads, dense.qk_dim, CodecRole::kKey, Codec::kBF16),
          native_field("v", dense.kv_heads, dense.v_dim, CodecRole::kValue, Codec::kBF16)};
      stream.tokens_per_row = kNsaStride;
      stream.purpose = Purpose::kAttention;
      break;
    case Summary::kIndexKey:
      stream = index_key_stream(shape.index_dim, shape.index_pool, Codec::kBF16);
      if (shape.has_index_value) {
        stream.fields.push_back(
            native_field("index_value", 1, shape.index_dim, CodecRole::kIndex, Codec::kBF16));
      }
      break;
  }
  return stream;
}

}  // namespace

LayerSpec block_sparse_layer(const BlockSparseShape& shape) {
  // NSA's window is a branch of the reads: its K and V never die.
  DenseShape dense = shape.dense;
  dense.window = 0;
  LayerSpec layer = dense_layer(dense);
  layer.architecture =
      shape.architecture.empty() ? block_sparse_name(shape.summary) : shape.architecture;
  for (Stream& stream : layer.streams) {
    stream.access = whole_blocks(shape.budget + shape.dense.window);
    stream.selection_layer = shape.selection_layer;
  }
  if (shape.selection_layer) return layer;
  layer.query.index_heads = shape.index_heads;
  layer.query.index_dim = shape.index_dim;
  layer.streams.push_back(summary_stream(shape));
  return layer;
}

}  // namespace kvarto
