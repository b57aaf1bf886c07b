// The keys of an attention layer as most families write them, and the windows of the layers.

#pragma once

#include <cstdint>
#include <vector>

#include "spec/architectures.h"
#include "spec/families/class_keys.h"
#include "spec/families/dense_types.h"

namespace kvarto {

struct DenseGeometry {
  ClassKeys::Frame frame;
  DenseShape shape;  // of a layer without a window
};

// Layers, heads, widths and context under all names that families use. Errors: missing keys
// without a class default; several names of one thing with different values; heads that KV heads
// do not divide; a head dim that does not follow from the hidden size.
[[nodiscard]] Result<DenseGeometry> read_dense_geometry(ClassKeys& read, const DenseType& type);

// Layers, hidden size and context alone.
[[nodiscard]] Result<ClassKeys::Frame> read_frame(ClassKeys& read, const DenseType& type);

// Query heads, KV heads and widths alone. `hidden_size` may be 0 if the head dim is stated.
[[nodiscard]] Result<DenseShape> read_heads(ClassKeys& read, const DenseType& type,
                                            std::int64_t hidden_size);

enum class LayerKind : std::uint8_t { kFull, kSliding, kChunked };

struct LayerKinds {
  std::vector<LayerKind> kinds;   // one a layer
  std::vector<LayerKind> drafts;  // kinds of draft layers that `layer_types` also lists
  std::uint64_t window = 0;       // tokens; 0 = no layer is sliding
};

// Reads `layer_types`, or applies the type's rule. Errors: a list of another length than the
// layers, an unknown word, a window that is missing or not positive.
[[nodiscard]] Result<LayerKinds> read_layer_kinds(ClassKeys& read, const DenseType& type,
                                                  const ClassKeys::Frame& frame);

// `layer_types` alone: empty if absent. A list longer than the layers by exactly the number of
// draft layers is accepted; the rest is put into `drafts`.
[[nodiscard]] Result<LayerKinds> read_layer_types(ClassKeys& read, std::int64_t num_layers);

// The window of tokens: the key's, the class's if absent, 0 if null.
[[nodiscard]] Result<std::uint64_t> read_window(ClassKeys& read, std::int64_t class_default);

// The number of draft layers (multi-token prediction) under `num_nextn_predict_layers` and its
// other names; 0 if absent.
[[nodiscard]] Result<std::int64_t> read_num_drafts(const Keys& keys);

// `shape` with the window that a layer of this kind has.
[[nodiscard]] DenseShape with_kind(DenseShape shape, LayerKind kind, std::uint64_t window);

// The draft layers: full attention of `shape` unless the file lists other kinds for them.
[[nodiscard]] Result<std::vector<LayerSpec>> read_dense_drafts(const Keys& keys,
                                                               const DenseShape& shape,
                                                               const LayerKinds& kinds);

// All layers of one shape, with the windows of `kinds`. Errors: a chunked layer.
[[nodiscard]] Result<ModelSpec> read_uniform_layers(ClassKeys& read, const DenseType& type,
                                                    const DenseGeometry& geometry,
                                                    const Keys& root);

}  // namespace kvarto
