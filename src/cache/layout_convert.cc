#include "kvarto/layout_convert.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "cache/slice.h"

namespace kvarto {

// A stream that is K and V at once stays row by row, and so do index keys, which are gathered.
bool is_key_stream(const LayerGroup& group, const Stream& stream) {
  if (stream.purpose != Purpose::kAttention || stream.fields.size() != 1) return false;
  if (stream.fields[0].role != CodecRole::kKey) return false;
  return std::any_of(group.streams.begin(), group.streams.end(), [](const Stream& other) {
    return other.fields.size() == 1 && other.fields[0].role == CodecRole::kValue;
  });
}

Status convert_layout(const SliceLayout& slice, Layout from_layout, std::span<const std::byte> from,
                      Layout to_layout, std::span<std::byte> to) {
  if (slice.stream >= slice.group.streams.size() ||
      slice.group.streams[slice.stream].fields.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("convert layout: stream {}, expected one with fields below {}",
                            slice.stream, slice.group.streams.size()));
  }
  const Stream& stream = slice.group.streams[slice.stream];
  const auto bytes = checked_mul(row_bytes(stream).total(), slice.rows);
  if (!bytes || from.size() < *bytes || to.size() < *bytes) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("convert layout: stream {}: {} and {} bytes, expected at least those of "
                    "{} rows of {}",
                    stream.name, from.size(), to.size(), slice.rows, row_bytes(stream).total()));
  }
  const bool is_key = is_key_stream(slice.group, stream);
  convert_slice(slice_shape(stream, is_key, from_layout, slice.rows), from.data(),
                slice_shape(stream, is_key, to_layout, slice.rows), to.data());
  return {};
}

}  // namespace kvarto
