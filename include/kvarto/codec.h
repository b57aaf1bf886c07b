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

#include "kvarto/codec_id.h"

namespace kvarto {

// Description of one codec. Immutable plain data.
struct CodecInfo {
  Codec codec{};
  std::string_view name;                 // as on the command line and in JSON
  std::uint32_t element_bits = 0;        // stored bits of one element, scales apart
  std::uint32_t group_elements = 0;      // elements that share scales; 0 = all elements of a head
  std::uint32_t group_scale_bytes = 0;   // bytes of scales (and minima) of one group
  bool is_partial_group_allowed = true;  // whether a head may end inside a group
  std::string_view source;               // where the format is defined
  // Whether scales lie inside the elements, group by group (ggml's blocks), wherever the stream
  // puts those of other codecs.
  bool has_scales_inside = false;
};

// All codecs, in the order of the enumeration.
[[nodiscard]] std::span<const CodecInfo> all_codecs();
// Of a number outside the enumeration: name "unknown", no bits.
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
