#include "kvarto/codec.h"

#include <array>

#include "base/checked.h"

namespace kvarto {
namespace {

// ggml sizes: ggml/src/ggml-common.h (block_q8_0 34 B, block_q5_1 24 B, block_q5_0 22 B,
// block_q4_1 20 B, block_q4_0 and block_iq4_nl 18 B per 32 elements).
constexpr std::array<CodecInfo, kNumCodecs> kCodecs = {{
    {Codec::kF32, "f32", 32, 1, 0, true, "IEEE 754 binary32"},
    {Codec::kF16, "f16", 16, 1, 0, true, "IEEE 754 binary16"},
    {Codec::kBF16, "bf16", 16, 1, 0, true, "upper half of binary32, nearest even"},
    {Codec::kFp8E4M3, "fp8_e4m3", 8, 1, 0, true, "OCP 8-bit floating point specification, E4M3"},
    {Codec::kFp8E5M2, "fp8_e5m2", 8, 1, 0, true, "OCP 8-bit floating point specification, E5M2"},
    {Codec::kQ8_0, "q8_0", 8, 32, 2, false, "ggml block_q8_0: f16 scale, 32 int8", true},
    {Codec::kQ5_1, "q5_1", 5, 32, 4, false, "ggml block_q5_1: f16 scale and minimum", true},
    {Codec::kQ5_0, "q5_0", 5, 32, 2, false, "ggml block_q5_0: f16 scale", true},
    {Codec::kQ4_1, "q4_1", 4, 32, 4, false, "ggml block_q4_1: f16 scale and minimum", true},
    {Codec::kQ4_0, "q4_0", 4, 32, 2, false, "ggml block_q4_0: f16 scale", true},
    {Codec::kIq4Nl, "iq4_nl", 4, 32, 2, false, "ggml block_iq4_nl: f16 scale, 16-entry table",
     true},
    {Codec::kInt8, "int8", 8, 0, 4, true, "vLLM int8_per_token_head: f32 scale per token and head"},
    {Codec::kInt4, "int4", 4, 128, 4, true, "as int8 with 4 bits, f32 scale per 128 elements"},
    {Codec::kNvfp4, "nvfp4", 4, 16, 1, false, "NVIDIA NVFP4: e2m1, e4m3 scale per 16"},
    {Codec::kMxfp4, "mxfp4", 4, 32, 1, false, "OCP Microscaling MXFP4: e2m1, ue8m0 scale per 32"},
    {Codec::kFp8Scaled128, "fp8_scaled_128", 8, 128, 4, true,
     "FlashMLA README, FP8 with scale: e4m3, f32 scale per 128"},
    {Codec::kFp8Scaled64, "fp8_scaled_64", 8, 64, 1, true,
     "FlashMLA tests/quant.py, MODEL1: e4m3, ue8m0 scale per 64"},
    {Codec::kFp8Scaled32, "fp8_scaled_32", 8, 32, 1, true,
     "DeepSeek-V4.1 window rows: e4m3, ue8m0 scale per 32"},
    {Codec::kInt2, "int2", 2, 32, 4, false,
     "KIVI (arXiv 2402.02750): f16 scale and minimum per 32"},
    {Codec::kInt32, "int32", 32, 1, 0, true, "two's complement, 32 bits"},
    {Codec::kBit, "bit", 1, 1, 0, true, "one bit an element, padded to whole bytes a head"},
    {Codec::kQ8KV, "q8_KV", 8, 0, 8, true, "ggml of ik_llama.cpp: int8, 8 bytes of scale a row"},
}};

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < kCodecs.size(); ++i) {
    if (static_cast<std::size_t>(kCodecs[i].codec) != i) return false;
  }
  return true;
}
static_assert(is_in_order());

// What a number outside the enumeration names, so that an error can be reported.
constexpr CodecInfo kUnknown{Codec{}, "unknown", 0, 1, 0, true, ""};

}  // namespace

std::span<const CodecInfo> all_codecs() { return kCodecs; }

const CodecInfo& codec_info(Codec codec) {
  const auto index = static_cast<std::size_t>(codec);
  return index < kCodecs.size() ? kCodecs[index] : kUnknown;
}

std::optional<Codec> codec_from_name(std::string_view name) {
  for (const CodecInfo& info : kCodecs) {
    if (info.name == name) return info.codec;
  }
  return std::nullopt;
}

CodecBytes codec_bytes(Codec codec, std::uint64_t width) {
  const CodecInfo& info = codec_info(codec);
  if (width == 0) return {};
  const std::uint64_t group = info.group_elements == 0 ? width : info.group_elements;
  return {.payload = ceil_div(width * info.element_bits, 8),
          .scales = ceil_div(width, group) * info.group_scale_bytes};
}

}  // namespace kvarto
