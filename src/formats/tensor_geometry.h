// Declared geometry against the shapes of tensors: what the keys say must be what the weights do.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvarto/model_spec.h"

namespace kvarto {

// A weight as a matrix of outputs (rows) by inputs (columns).
struct TensorShape {
  std::string_view name;
  std::uint64_t rows = 1;
  std::uint64_t columns = 1;
  std::size_t num_dims = 0;
};

// Finds the group of a layer by its number, drafts included. The spec must outlive it.
class LayerLookup {
 public:
  explicit LayerLookup(const ModelSpec& spec);
  [[nodiscard]] const LayerGroup* find(std::uint64_t layer) const;

 private:
  std::vector<const LayerGroup*> groups_;
};

// Checks a tensor that belongs to the attention of a layer: projections of K, of V, of all three,
// of the latent, of its expansion, of index keys. Names are those of GGUF (`blk.0.attn_k.weight`)
// and of Hugging Face models (`model.layers.0.self_attn.k_proj.weight`); others pass unchecked.
// Errors: kCorruptData with both numbers.
[[nodiscard]] Status check_tensor(const TensorShape& tensor, const LayerLookup& layers,
                                  std::string_view where);

}  // namespace kvarto
