#include "kvarto/layout.h"

#include "base/code_format.h"

namespace kvarto {

std::string_view layout_name(Layout layout) {
  return layout == Layout::kGeneric ? "generic" : "hardware";
}

namespace {

bool is_plain(Codec codec) {
  return codec == Codec::kF32 || codec == Codec::kF16 || codec == Codec::kBF16;
}

bool is_read_in_runs(const Stream& stream) {
  return stream.access.kind == Access::Kind::kAll || stream.access.kind == Access::Kind::kWindow;
}

// Tiles move the scales of codes out of the rows, so rows must be codes and scales alone.
bool has_code_tiles(const Stream& stream, bool is_key) {
  const Field& field = stream.fields.front();
  return stream.fields.size() == 1 && (is_key || field.role == CodecRole::kValue) &&
         !stream.scales_in_footer && stream.row_pad_bytes == 0 && stream.block_align_bytes == 1 &&
         code_format(field.codec, field.width).has_value();
}

}  // namespace

StreamLayout choose_layout(const Stream& stream, bool is_key, Layout layout,
                           std::uint64_t rows_per_block) {
  const Field& field = stream.fields.front();
  const std::uint64_t head_bytes = head_bytes_in_row(stream, field);
  if (layout == Layout::kGeneric) {
    return {.order = RowOrder::kRowHead,
            .head_stride_bytes = head_bytes,
            .row_stride_bytes = head_bytes * field.heads};
  }
  const bool can_tile = is_read_in_runs(stream) && rows_per_block % kTileRows == 0;
  if (can_tile && is_key && is_plain(field.codec)) {
    return {.order = RowOrder::kHeadTiles,
            .head_stride_bytes = head_bytes * rows_per_block,
            .row_stride_bytes = head_bytes * kTileRows};
  }
  if (can_tile && has_code_tiles(stream, is_key)) {
    const std::uint64_t code_bytes = codec_bytes(field.codec, field.width).payload;
    return {.order = is_key ? RowOrder::kHeadTiles : RowOrder::kHeadValueTiles,
            .head_stride_bytes = code_bytes * rows_per_block,
            .row_stride_bytes = code_bytes * kTileRows};
  }
  return {.order = RowOrder::kHeadRow,
          .head_stride_bytes = head_bytes * rows_per_block,
          .row_stride_bytes = head_bytes};
}

}  // namespace kvarto
