// DeepSeek-V4 and V4.1: a short window in every layer, and one compressed row every `ratio` tokens,
// read by top-k (CSA) or all (HCA). One vector serves as key and value.
//
// Sources: arXiv 2606.19348 (V4) and 2609.19969 (V4.1); rows of V4: FlashMLA tests/quant.py, format
// MODEL1: 448 e4m3, 64 bf16, 7 ue8m0 scales and 1 byte of padding = 584 bytes, the scales at the
// end of the block, the block padded to a multiple of 576 bytes; rows of V4.1: window e4m3 in
// groups of 32, compressed NVFP4 (288 bytes), index keys MXFP4 (68 bytes).

#include "spec/architectures/parts.h"

namespace kvarto {
namespace {

// FlashMLA pads the scales of a MODEL1 row to 8 bytes and its block to a multiple of 576 bytes.
constexpr std::uint32_t kScalePadBytes = 8;
constexpr std::uint32_t kBlockAlignBytes = 576;
constexpr std::uint32_t kPackedGroup = 64;

Stream kv_stream(const CompressedShape& shape, const char* name, Codec nope, Codec rope) {
  Stream stream;
  stream.name = name;
  stream.fields.push_back(native_field("nope", 1, shape.nope_dim, CodecRole::kKey, nope));
  stream.fields.back().packed = Codec::kFp8Scaled64;
  if (shape.rope_dim != 0) {
    stream.fields.push_back(native_field("rope", 1, shape.rope_dim, CodecRole::kKey, rope));
    stream.fields.back().packed = Codec::kBF16;
  }
  stream.shard = Shard::kReplicate;
  stream.has_packed_form = true;
  const std::uint32_t num_scales = (shape.nope_dim + kPackedGroup - 1) / kPackedGroup;
  stream.packed_row_pad_bytes = (kScalePadBytes - num_scales % kScalePadBytes) % kScalePadBytes;
  stream.packed_block_align_bytes = kBlockAlignBytes;
  stream.packed_scales_in_footer = true;
  return stream;
}

Stream window_stream(const CompressedShape& shape) {
  Stream stream = shape.is_nvfp4_release
                      ? kv_stream(shape, "window_kv", Codec::kFp8Scaled32, Codec::kFp8Scaled32)
                      : kv_stream(shape, "window_kv", Codec::kFp8Scaled64, Codec::kBF16);
  stream.lifetime = {Lifetime::Kind::kWindow, shape.window};
  stream.access = {.kind = Access::Kind::kWindow, .count = shape.window};
  stream.truncate = {Truncate::Kind::kResident, 0};
  return stream;
}

Stream compressed_stream(const CompressedShape& shape) {
  Stream stream = shape.is_nvfp4_release
                      ? kv_stream(shape, "compressed_kv", Codec::kNvfp4, Codec::kNvfp4)
                      : kv_stream(shape, "compressed_kv", Codec::kFp8Scaled64, Codec::kBF16);
  stream.tokens_per_row = shape.ratio;
  if (shape.indexer) stream.access = top_k(shape.indexer->top_k);
  if (shape.ratio > 1) stream.born_from = "compressor_state";
  stream.owner_layer = shape.kv_owner_layer;
  stream.selection_layer = shape.selection_layer;
  return stream;
}

// The compressor's running inputs: a ring of projected vectors and their scores, f32. With overlap
// a row mixes two groups, each through its own half of a projection twice as wide. Empty at
// multiples of the ratio unless the groups overlap.
Stream state_stream(const CompressedShape& shape, const char* name, std::uint32_t dim) {
  const std::uint32_t factor = shape.has_overlap ? 2 : 1;
  const std::uint32_t rows = factor * static_cast<std::uint32_t>(shape.ratio);
  const std::uint32_t width = rows * factor * dim;
  Stream stream;
  stream.name = name;
  stream.ring_rows = rows;
  stream.fields = {fixed_field("kv", 1, width, Codec::kF32),
                   fixed_field("score", 1, width, Codec::kF32)};
  stream.lifetime = {Lifetime::Kind::kConstant, 0};
  stream.access = not_read();
  stream.truncate = shape.has_overlap ? Truncate{Truncate::Kind::kSnapshot, 0}
                                      : Truncate{Truncate::Kind::kBoundary, shape.ratio};
  stream.shard = Shard::kReplicate;
  stream.purpose = Purpose::kState;
  return stream;
}

// Index keys: V4 has a compressor of their own, V4.1 projects them from the compressed row.
Stream index_stream(const CompressedShape& shape, const IndexerShape& indexer) {
  Stream stream = index_key_stream(indexer.dim, shape.ratio, Codec::kMxfp4);
  stream.fields.front().follows_wide_key = true;
  stream.born_from = shape.is_nvfp4_release ? "compressed_kv" : "index_compressor_state";
  stream.owner_layer = shape.kv_owner_layer;
  if (indexer.candidate_rows != 0) stream.access = whole_blocks(indexer.candidate_rows);
  return stream;
}

const char* compressed_name(const CompressedShape& shape) {
  if (shape.ratio == 0) return "swa";
  if (shape.is_nvfp4_release) return "csa2";
  return shape.indexer ? "csa" : "hca";
}

}  // namespace

LayerSpec compressed_layer(const CompressedShape& shape) {
  LayerSpec layer;
  layer.architecture = compressed_name(shape);
  const std::uint32_t dim = shape.nope_dim + shape.rope_dim;
  layer.query = {.q_heads = shape.q_heads, .qk_dim = dim, .v_dim = dim};
  layer.streams.push_back(window_stream(shape));
  if (shape.ratio == 0) return layer;
  layer.streams.push_back(compressed_stream(shape));
  const bool has_index = shape.indexer && !shape.selection_layer;
  if (has_index) {
    layer.query.index_heads = shape.indexer->heads;
    layer.query.index_dim = shape.indexer->dim;
    layer.streams.push_back(index_stream(shape, *shape.indexer));
  }
  if (shape.kv_owner_layer || shape.ratio == 1) return layer;
  layer.streams.push_back(state_stream(shape, "compressor_state", dim));
  if (has_index && !shape.is_nvfp4_release) {
    layer.streams.push_back(state_stream(shape, "index_compressor_state", shape.indexer->dim));
  }
  return layer;
}

}  // namespace kvarto
