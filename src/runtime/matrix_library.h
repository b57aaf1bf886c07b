// Products of two dense matrices by oneDNN, where the library was built with it.

#pragma once

#include <cstdint>
#include <string_view>

namespace kvarto {

// c[t][r] = sum over k of a[t][k] * b[r][k], row by row in memory.
struct DenseProduct {
  const float* a = nullptr;  // [num_tokens][depth]
  const float* b = nullptr;  // [num_rows][depth]
  float* c = nullptr;        // rows `c_stride` floats apart
  std::uint64_t num_tokens = 0;
  std::uint64_t num_rows = 0;
  std::uint64_t depth = 0;
  std::uint64_t c_stride = 0;
};

// Whether the library was built with oneDNN.
[[nodiscard]] bool has_matrix_library();

// Runs on the calling thread alone. False, with c unspecified, if oneDNN refuses.
// Requires: has_matrix_library().
[[nodiscard]] bool multiply_dense(const DenseProduct& product);

}  // namespace kvarto
