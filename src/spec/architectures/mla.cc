// MLA, multi-head latent attention: one row a token for all heads, [latent, rope]. The keys are
// the whole row, the values its first `latent_dim` elements.
//
// Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1; packed row: FlashMLA README, "FP8 with
// scale": 512 e4m3, 4 f32 scales, 64 bf16 = 656 bytes.

#include "spec/architectures/parts.h"

namespace kvarto {

LayerSpec mla_layer(const LatentShape& shape) {
  Stream latent;
  latent.name = "latent";
  latent.fields.push_back(
      native_field("latent", 1, shape.latent_dim, CodecRole::kKey, Codec::kBF16));
  latent.fields.back().packed = Codec::kFp8Scaled128;
  if (shape.rope_dim != 0) {
    latent.fields.push_back(native_field("rope", 1, shape.rope_dim, CodecRole::kKey, Codec::kBF16));
  }
  latent.shard = Shard::kReplicate;
  latent.has_packed_form = true;

  LayerSpec layer;
  layer.architecture = "mla";
  // As executed over the cache: absorbed into one head of latent + rope.
  layer.query = {.q_heads = shape.q_heads,
                 .qk_dim = shape.latent_dim + shape.rope_dim,
                 .v_dim = shape.latent_dim,
                 .full_qk_dim = shape.nope_dim == 0 ? 0 : shape.nope_dim + shape.rope_dim,
                 .full_v_dim = shape.v_dim};
  layer.streams.push_back(std::move(latent));
  return layer;
}

}  // namespace kvarto
