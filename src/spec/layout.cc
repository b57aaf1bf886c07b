#include "kvarto/layout.h"

namespace kvarto {

std::string_view layout_name(Layout layout) {
  return layout == Layout::kGeneric ? "generic" : "hardware";
}

namespace {

bool has_tiles(Codec codec) {
  return codec == Codec::kF32 || codec == Codec::kF16 || codec == Codec::kBF16;
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
  const bool is_read_in_runs =
      stream.access.kind == Access::Kind::kAll || stream.access.kind == Access::Kind::kWindow;
  if (is_key && has_tiles(field.codec) && is_read_in_runs && rows_per_block % kTileRows == 0) {
    return {.order = RowOrder::kHeadTiles,
            .head_stride_bytes = head_bytes * rows_per_block,
            .row_stride_bytes = head_bytes * kTileRows};
  }
  return {.order = RowOrder::kHeadRow,
          .head_stride_bytes = head_bytes * rows_per_block,
          .row_stride_bytes = head_bytes};
}

}  // namespace kvarto
