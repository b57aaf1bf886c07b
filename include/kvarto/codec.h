// Element formats of cached rows, as data: how many bytes a row takes, exactly.
//
// A codec stores the `width` elements of one head of one token. It splits them into groups; a
// group has its elements and its scales. Where the scales lie (inline with the group, or in the
// footer of the block) is a property of the stream, not of the codec.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

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

// Description of one codec. Immutable plain data.
struct CodecInfo {
  Codec codec{};
  std::string_view name;                 // as on the command line and in JSON
  std::uint32_t element_bits = 0;        // stored bits of one element, scales apart
  std::uint32_t group_elements = 0;      // elements that share scales; 0 = all elements of a head
  std::uint32_t group_scale_bytes = 0;   // bytes of scales (and minima) of one group
  bool is_partial_group_allowed = true;  // whether a head may end inside a group
  std::string_view source;               // where the format is defined
};

// All codecs, in the order of the enumeration.
[[nodiscard]] std::span<const CodecInfo> all_codecs();
[[nodiscard]] const CodecInfo& codec_info(Codec codec);
[[nodiscard]] std::optional<Codec> codec_from_name(std::string_view name);

// Bytes of one head of `width` elements: the elements alone, and the scales alone.
// An odd number of 4- or 5-bit elements is rounded up to whole bytes.
struct CodecBytes {
  std::uint64_t payload = 0;
  std::uint64_t scales = 0;
  [[nodiscard]] std::uint64_t total() const { return payload + scales; }
};
[[nodiscard]] CodecBytes codec_bytes(Codec codec, std::uint64_t width);

}  // namespace kvarto
