// What a forward pass does, as plain data: the tensors of every layer, and the choices in which
// families differ. Filled by decoder_reader.h, carried out by forward.h.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/forward_kernels.h"
#include "runtime/rope.h"

namespace kvarto {

// A weight [rows, columns] as it lies in its file: y = W x has one element a row.
struct Matrix {
  WeightType type = WeightType::kF32;
  const std::byte* bytes = nullptr;  // null: there is none
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::uint64_t row_bytes = 0;
};

// Norms and biases are widened to f32. Empty: there is none.
using Vector = std::vector<float>;

struct DecoderLayer {
  Vector attention_norm;
  Vector q_norm;  // of each head
  Vector k_norm;
  Vector post_attention_norm;  // before the residual sum
  Vector ffn_norm;
  Vector post_ffn_norm;
  Matrix q, k, v, o;
  Vector q_bias, k_bias, v_bias, o_bias;
  Matrix gate, up, down;
  Vector gate_bias, up_bias, down_bias;

  std::uint32_t q_heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint64_t window = 0;  // tokens; 0 = all
  std::uint32_t rope = 0;    // index into Decoder::ropes
};

struct Decoder {
  std::string_view family;
  std::uint32_t hidden_size = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t ffn_size = 0;
  float norm_eps = 0;
  Activation activation = Activation::kSilu;
  float embedding_scale = 1;
  float attention_scale = 0;
  float attention_soft_cap = 0;  // 0: none
  float final_soft_cap = 0;
  Matrix embedding;
  Matrix head;
  Vector final_norm;
  std::vector<Rope> ropes;  // of layers that see everything; of layers with a window
  std::vector<DecoderLayer> layers;
  std::uint64_t weight_bytes = 0;  // of all tensors used
};

}  // namespace kvarto
