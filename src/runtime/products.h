// Products of weights with activations, on all threads of a pool.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/aligned_floats.h"
#include "base/thread_pool.h"
#include "kernels/forward_kernels.h"
#include "runtime/decoder.h"

namespace kvarto {

// out[t][r] = sum over c of weight[r][c] * x[t][c] (+ bias[r]).
struct Product {
  const Matrix* weight = nullptr;
  const Vector* bias = nullptr;  // null or empty: none
  float* out = nullptr;          // [num_tokens, rows]
};

// Few tokens: rows of weights as they are stored, times activations (in integers where weights are
// quantised). Many: panels of rows widened to f32 and multiplied by the matrix library, or by the
// kernels of f32 rows without it. Not thread-safe; one owner.
class Products {
 public:
  // `uses_library`: requires has_matrix_library(). The pool must outlive this.
  Products(const ForwardKernels& kernels, ThreadPool& pool, bool uses_library);

  // All of `products` have the columns of x [num_tokens, columns].
  void run(std::span<const Product> products, const float* x, std::uint64_t num_tokens);

 private:
  // Rows [first, first + count) of products[product].
  struct Piece {
    std::uint32_t product = 0;
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  // Activations of one group size, of all tokens.
  struct Codes {
    std::vector<std::int16_t> codes;
    std::vector<float> scales;
    std::vector<float> sums;
  };
  // The codes as products with weights of one type take them, where kernels have such a form.
  struct Packed {
    AlignedFloats storage;
    std::byte* bytes = nullptr;
    std::uint64_t token_bytes = 0;
  };
  struct Call {
    std::span<const Product> products;
    const float* x = nullptr;
    std::uint32_t num_tokens = 0;
    std::uint32_t columns = 0;
  };

  void make_pieces(const Call& call, std::uint64_t piece_bytes, bool is_widened);
  void code_all(const Call& call);
  void code(const Call& call, std::uint32_t group, Codes& codes) const;
  void pack(const Call& call, WeightType type);
  void run_rows(const Call& call, const Piece& piece) const;
  void run_panel(const Call& call, const Piece& piece, AlignedFloats& panel) const;
  void add_bias(const Call& call, const Piece& piece) const;

  const ForwardKernels& kernels_;
  ThreadPool& pool_;
  bool uses_library_;
  std::vector<AlignedFloats> panels_;  // one a thread
  std::vector<Piece> pieces_;
  Codes by_32_;
  Codes by_256_;
  std::array<Packed, kNumWeightTypes> packed_;
};

}  // namespace kvarto
