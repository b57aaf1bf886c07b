// The element formats by name alone; codec.h describes them. Apart, because kernels include nothing
// that has functions.

#pragma once

#include <cstdint>

namespace kvarto {

enum class Codec : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kFp8E4M3,  // e4m3fn, one scale per tensor kept outside the cache
  kFp8E5M2,
  kQ8_0,  // ggml blocks of 32
  kQ5_1,
  kQ5_0,
  kQ4_1,
  kQ4_0,
  kIq4Nl,
  kInt8,          // one f32 scale per token and head (vLLM int8_per_token_head)
  kInt4,          // the same with 4 bits, one f32 scale per group of at most 128 elements
  kNvfp4,         // e2m1 pairs, one e4m3 scale per 16
  kMxfp4,         // e2m1 pairs, one ue8m0 scale per 32
  kFp8Scaled128,  // e4m3, one f32 scale per 128: DeepSeek latent (656-byte row) and index keys
  kFp8Scaled64,   // e4m3, one ue8m0 scale per 64: DeepSeek-V4 rows (584 bytes)
  kFp8Scaled32,   // e4m3, one ue8m0 scale per 32: DeepSeek-V4.1 window rows
  kInt2,          // 2 bits, f16 scale and f16 minimum per 32: KIVI; its 4-bit form is kQ4_1
  kInt32,         // positions
  kBit,           // masks
  kQ8KV,          // ik_llama.cpp: int8, 8 bytes of scale per row
};
inline constexpr int kNumCodecs = 22;

}  // namespace kvarto
