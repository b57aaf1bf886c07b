#include <array>
#include <cstddef>

#include "kvarto/tensor_file.h"

namespace kvarto {
namespace {

// Sources: safetensors 0.7 `Dtype`; ggml `ggml-common.h` (block structs); ik_llama.cpp
// gguf-py/gguf/constants.py (blocks) and ggml/src/ggml.c (row_meta_size).
// In the order of the enumeration.
constexpr std::array kLayouts = {
    TensorTypeLayout{TensorType::kF64, "F64", 1, 8},
    TensorTypeLayout{TensorType::kF32, "F32", 1, 4},
    TensorTypeLayout{TensorType::kF16, "F16", 1, 2},
    TensorTypeLayout{TensorType::kBF16, "BF16", 1, 2},
    TensorTypeLayout{TensorType::kI64, "I64", 1, 8},
    TensorTypeLayout{TensorType::kI32, "I32", 1, 4},
    TensorTypeLayout{TensorType::kI16, "I16", 1, 2},
    TensorTypeLayout{TensorType::kI8, "I8", 1, 1},
    TensorTypeLayout{TensorType::kU64, "U64", 1, 8},
    TensorTypeLayout{TensorType::kU32, "U32", 1, 4},
    TensorTypeLayout{TensorType::kU16, "U16", 1, 2},
    TensorTypeLayout{TensorType::kU8, "U8", 1, 1},
    TensorTypeLayout{TensorType::kBool, "BOOL", 1, 1},
    TensorTypeLayout{TensorType::kC64, "C64", 1, 8},
    TensorTypeLayout{TensorType::kF8E4M3, "F8_E4M3", 1, 1},
    TensorTypeLayout{TensorType::kF8E5M2, "F8_E5M2", 1, 1},
    TensorTypeLayout{TensorType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 1, 1},
    TensorTypeLayout{TensorType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 1, 1},
    TensorTypeLayout{TensorType::kF8E8M0, "F8_E8M0", 1, 1},
    TensorTypeLayout{TensorType::kF6E2M3, "F6_E2M3", 4, 3},
    TensorTypeLayout{TensorType::kF6E3M2, "F6_E3M2", 4, 3},
    TensorTypeLayout{TensorType::kF4, "F4", 2, 1},
    TensorTypeLayout{TensorType::kQ4_0, "Q4_0", 32, 18},
    TensorTypeLayout{TensorType::kQ4_1, "Q4_1", 32, 20},
    TensorTypeLayout{TensorType::kQ5_0, "Q5_0", 32, 22},
    TensorTypeLayout{TensorType::kQ5_1, "Q5_1", 32, 24},
    TensorTypeLayout{TensorType::kQ8_0, "Q8_0", 32, 34},
    TensorTypeLayout{TensorType::kQ8_1, "Q8_1", 32, 36},
    TensorTypeLayout{TensorType::kQ2K, "Q2_K", 256, 84},
    TensorTypeLayout{TensorType::kQ3K, "Q3_K", 256, 110},
    TensorTypeLayout{TensorType::kQ4K, "Q4_K", 256, 144},
    TensorTypeLayout{TensorType::kQ5K, "Q5_K", 256, 176},
    TensorTypeLayout{TensorType::kQ6K, "Q6_K", 256, 210},
    TensorTypeLayout{TensorType::kQ8K, "Q8_K", 256, 292},
    TensorTypeLayout{TensorType::kIq1S, "IQ1_S", 256, 50},
    TensorTypeLayout{TensorType::kIq1M, "IQ1_M", 256, 56},
    TensorTypeLayout{TensorType::kIq2Xxs, "IQ2_XXS", 256, 66},
    TensorTypeLayout{TensorType::kIq2Xs, "IQ2_XS", 256, 74},
    TensorTypeLayout{TensorType::kIq2S, "IQ2_S", 256, 82},
    TensorTypeLayout{TensorType::kIq3Xxs, "IQ3_XXS", 256, 98},
    TensorTypeLayout{TensorType::kIq3S, "IQ3_S", 256, 110},
    TensorTypeLayout{TensorType::kIq4Nl, "IQ4_NL", 32, 18},
    TensorTypeLayout{TensorType::kIq4Xs, "IQ4_XS", 256, 136},
    TensorTypeLayout{TensorType::kTq1_0, "TQ1_0", 256, 54},
    TensorTypeLayout{TensorType::kTq2_0, "TQ2_0", 256, 66},
    TensorTypeLayout{TensorType::kMxfp4, "MXFP4", 32, 17},
    TensorTypeLayout{TensorType::kNvfp4, "NVFP4", 64, 36},
    TensorTypeLayout{TensorType::kQ1_0, "Q1_0", 128, 18},
    TensorTypeLayout{TensorType::kQ2_0, "Q2_0", 64, 18},
    TensorTypeLayout{TensorType::kQ6_0, "Q6_0", 32, 26},
    TensorTypeLayout{TensorType::kIq1Bn, "IQ1_BN", 64, 13, 2},
    TensorTypeLayout{TensorType::kIq2Bn, "IQ2_BN", 64, 16, 4},
    TensorTypeLayout{TensorType::kIq2K, "IQ2_K", 256, 76},
    TensorTypeLayout{TensorType::kIq3K, "IQ3_K", 256, 110},
    TensorTypeLayout{TensorType::kIq4K, "IQ4_K", 256, 144},
    TensorTypeLayout{TensorType::kIq5K, "IQ5_K", 256, 176},
    TensorTypeLayout{TensorType::kIq6K, "IQ6_K", 256, 212},
    TensorTypeLayout{TensorType::kIq4Ks, "IQ4_KS", 256, 136, 4},
    TensorTypeLayout{TensorType::kIq2Ks, "IQ2_KS", 256, 70, 2},
    TensorTypeLayout{TensorType::kIq4Kss, "IQ4_KSS", 256, 128, 4},
    TensorTypeLayout{TensorType::kQ8Kv, "Q8_KV", 32, 32, 8},
    TensorTypeLayout{TensorType::kIq5Ks, "IQ5_KS", 256, 168, 4},
    TensorTypeLayout{TensorType::kIq2Kt, "IQ2_KT", 256, 68, 4},
    TensorTypeLayout{TensorType::kIq3Kt, "IQ3_KT", 256, 100, 4},
    TensorTypeLayout{TensorType::kIq4Kt, "IQ4_KT", 256, 128, 4},
    TensorTypeLayout{TensorType::kIq3Ks, "IQ3_KS", 256, 102, 2},
    TensorTypeLayout{TensorType::kIq2Kl, "IQ2_KL", 256, 86, 2},
    TensorTypeLayout{TensorType::kIq1Kt, "IQ1_KT", 256, 56, 4},
};

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < kLayouts.size(); ++i) {
    if (static_cast<std::size_t>(kLayouts[i].type) != i) return false;
  }
  return true;
}
static_assert(is_in_order());

}  // namespace

const TensorTypeLayout& tensor_type_layout(TensorType type) {
  return kLayouts[static_cast<std::size_t>(type)];
}

}  // namespace kvarto
