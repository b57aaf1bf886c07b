// Conversion of cached rows from one layout to another, without loss.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvarto/layout.h"
#include "kvarto/model_spec.h"

namespace kvarto {

// Whether `stream` is K beside a V of its own in `group`: multiplied with queries and nothing else.
// Such streams get transposed tiles under Layout::kHardware.
[[nodiscard]] bool is_key_stream(const LayerGroup& group, const Stream& stream);

// The rows of one stream in one block.
struct SliceLayout {
  const LayerGroup& group;
  std::uint32_t stream = 0;  // index into group.streams
  std::uint64_t rows = 0;    // rows_per_block of the stream's track
};

// Copies one slice from layout to layout: payload, scales and padding of all rows, bit by bit.
// Codecs of less than a byte an element are transposed in whole bytes. Errors: kInvalidArgument for
// a stream that is not in the group, or spans shorter than the rows.
[[nodiscard]] Status convert_layout(const SliceLayout& slice, Layout from_layout,
                                    std::span<const std::byte> from, Layout to_layout,
                                    std::span<std::byte> to);

}  // namespace kvarto
