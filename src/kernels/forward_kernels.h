// Kernels of a forward pass around attention: rows of weights times activations, norms, rotations.
//
// Quantised weights are multiplied with activations in 16-bit integers (code_activations). The
// products of a group of weights are added exactly in 32 bits; then come the scales, in f32. With Q
// the largest integer of an activation, an element is rounded by at most max|x| / 2Q of its group.
//
// Data only; included by code compiled with per-file instruction sets, as kernels.h is.

#pragma once

#include <cstddef>
#include <cstdint>

namespace kvarto {

// Formats of weights. Sources: IEEE 754; ggml's `ggml-common.h` for blocks.
enum class WeightType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,  // blocks of 32
  kQ5_0,
  kQ4_0,
  kQ4K,  // blocks of 256
  kQ5K,
  kQ6K,
};
inline constexpr int kNumWeightTypes = 9;
inline constexpr int kNumDenseWeightTypes = 3;

// Largest integer of an activation. Blocks of 256 fold a scale into the weight:
// |weight x scale| <= 2^12 (q6_K), so that 32 products in a lane stay below 2^31.
// 32,639 is 127 x 257: two signed bytes hold it.
inline constexpr std::int32_t kMaxCode32 = 32'639;
inline constexpr std::int32_t kMaxCode256 = 16'383;
// Blocks of 256 are summed up in runs of 32 (their minima) as well.
inline constexpr std::uint32_t kSumRun = 32;

// codes[i] = round(x[i] / scales[i / group]), |codes| <= the largest integer of the group.
struct CodeActivationsArgs {
  const float* x = nullptr;
  std::uint32_t count = 0;   // a multiple of `group`
  std::uint32_t group = 32;  // 32 or 256
  std::int16_t* codes = nullptr;
  float* scales = nullptr;  // [count / group]
  float* sums = nullptr;    // [count / 32] of x as coded; groups of 256 alone
};
using CodeActivationsFunction = void (*)(const CodeActivationsArgs&);

// Codes as products with weights of one type take them where there is a kernel for it: 64 at a time
// in `kPackedBytes`, the last ones filled up with zeros.
struct PackCodesArgs {
  const std::int16_t* codes = nullptr;
  std::uint32_t count = 0;  // a multiple of 32
  WeightType type{};        // quantised
  std::byte* out = nullptr;
};
using PackCodesFunction = void (*)(const PackCodesArgs&);
inline constexpr std::uint32_t kPackedCodes = 64;
inline constexpr std::uint32_t kPackedBytes = 192;

// out[r] = sum over c of weight[r][c] * x[c].
struct RowProductsArgs {
  const std::byte* weights = nullptr;  // of the first row; no alignment is asked for
  std::uint64_t row_bytes = 0;
  std::uint32_t num_rows = 0;
  std::uint32_t columns = 0;
  const float* x = nullptr;             // dense types
  const std::int16_t* codes = nullptr;  // quantised types
  const std::byte* packed = nullptr;    // the same, for this type, where there is pack_codes
  const float* scales = nullptr;
  const float* sums = nullptr;
  float* out = nullptr;
};
using RowProductsFunction = void (*)(const RowProductsArgs&);

// `count` weights of one row as f32; a multiple of the block.
using WidenFunction = void (*)(const std::byte* from, float* to, std::size_t count);

// out[i] = x[i] / sqrt(mean of x^2 + eps) * weight[i]; out may be x.
struct RmsNormArgs {
  const float* x = nullptr;
  const float* weight = nullptr;
  float* out = nullptr;
  std::uint32_t count = 0;
  float eps = 0;
};
using RmsNormFunction = void (*)(const RmsNormArgs&);

enum class Activation : std::uint8_t {
  kSilu,      // x / (1 + e^-x)
  kGeluTanh,  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
};

// gate[i] = activation(gate[i]) * up[i].
struct GateArgs {
  float* gate = nullptr;
  const float* up = nullptr;
  std::size_t count = 0;
  Activation activation = Activation::kSilu;
};
using GateFunction = void (*)(const GateArgs&);

// Which elements of a head turn together.
enum class RopeOrder : std::uint8_t {
  kHalves,  // i and i + dims / 2: Hugging Face's order, llama.cpp's "neox"
  kPairs,   // 2 i and 2 i + 1: the papers' order, llama.cpp's "norm"
};

// Turns the first `dims` elements of every head of one token, in place.
struct RotateArgs {
  float* heads = nullptr;  // [num_heads][head_dim]
  std::uint32_t num_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t dims = 0;
  const float* cosines = nullptr;  // [dims / 2]
  const float* sines = nullptr;
  RopeOrder order = RopeOrder::kHalves;
};
using RotateFunction = void (*)(const RotateArgs&);

struct ForwardKernels {
  const char* isa = nullptr;
  RowProductsFunction row_products[kNumWeightTypes] = {};
  WidenFunction widen[kNumWeightTypes] = {};
  CodeActivationsFunction code_activations = nullptr;
  PackCodesFunction pack_codes = nullptr;  // null: products take the codes themselves
  RmsNormFunction rms_norm = nullptr;
  GateFunction gate = nullptr;
  RotateFunction rotate = nullptr;
};

}  // namespace kvarto
