// Where the fields of a stream lie in its slice of a block.

#include <algorithm>

#include "cache/slice.h"

namespace kvarto {
namespace {

FieldShape field_shape(const Stream& stream, const Field& field) {
  FieldShape shape;
  shape.codec = field.codec;
  shape.heads = field.heads;
  shape.width = field.width;
  shape.head_bytes = head_bytes_in_row(stream, field);
  shape.scale_bytes = codec_bytes(field.codec, field.width).total() - shape.head_bytes;
  if (is_plain(field.codec)) shape.unit_bytes = codec_info(field.codec).element_bits / 8;
  return shape;
}

bool is_read_as_one(const Stream& stream) {
  if (stream.row_pad_bytes != 0 || stream.block_align_bytes != 1) return false;
  return std::all_of(stream.fields.begin(), stream.fields.end(), [&](const Field& field) {
    return field.heads == 1 && is_plain(field.codec) && field.codec == stream.fields[0].codec;
  });
}

SliceShape row_by_row_shape(const Stream& stream, Layout layout, std::uint64_t rows) {
  SliceShape shape;
  shape.rows = rows;
  // Of one head both orders are one.
  const bool has_one_head = std::all_of(stream.fields.begin(), stream.fields.end(),
                                        [](const Field& field) { return field.heads == 1; });
  const RowOrder order =
      layout == Layout::kHardware && has_one_head ? RowOrder::kHeadRow : RowOrder::kRowHead;
  std::uint64_t offset = 0;
  std::uint64_t scale_offset = 0;
  for (const Field& field : stream.fields) {
    FieldShape part = field_shape(stream, field);
    part.offset_bytes = offset;
    part.scale_offset_bytes = scale_offset;
    part.layout = {.order = order, .head_stride_bytes = part.head_bytes};
    offset += part.head_bytes * field.heads;
    scale_offset += part.scale_bytes * field.heads;
    shape.fields.push_back(part);
  }
  const std::uint64_t stride = offset + (stream.scales_in_footer ? 0 : row_bytes(stream).padding);
  for (FieldShape& part : shape.fields) part.layout.row_stride_bytes = stride;
  if (stream.scales_in_footer) {
    shape.footer = {.offset_bytes = stride * rows,
                    .piece_bytes = scale_offset + row_bytes(stream).padding};
  }
  return shape;
}

}  // namespace

bool SliceShape::is_coded_by(const KernelTable& kernels) const {
  return std::all_of(fields.begin(), fields.end(), [&](const FieldShape& field) {
    if (is_plain(field.codec)) return true;
    return field.width <= kMaxCodedWidth &&
           kernels.encode[static_cast<std::size_t>(field.codec)] != nullptr;
  });
}

std::uint64_t SliceShape::row_elements() const {
  std::uint64_t elements = 0;
  for (const FieldShape& field : fields) elements += std::uint64_t{field.heads} * field.width;
  return elements;
}

SliceShape slice_shape(const Stream& stream, bool is_key, Layout layout, std::uint64_t rows) {
  const bool is_merged = stream.fields.size() > 1 && is_read_as_one(stream);
  if (stream.fields.size() > 1 && !is_merged) return row_by_row_shape(stream, layout, rows);
  Stream single = stream;
  if (is_merged) {
    for (std::size_t i = 1; i < stream.fields.size(); ++i) {
      single.fields[0].width += stream.fields[i].width;
    }
    single.fields.resize(1);
  }
  SliceShape shape;
  shape.rows = rows;
  FieldShape field = field_shape(single, single.fields[0]);
  field.layout = choose_layout(single, is_key && !is_merged, layout, rows);
  if (!is_plain(field.codec) && (field.layout.order == RowOrder::kHeadTiles ||
                                 field.layout.order == RowOrder::kHeadValueTiles)) {
    field.codes = code_format(field.codec, field.width);
  }
  shape.footer = {.offset_bytes = field.head_bytes * field.heads * rows,
                  .piece_bytes = field.scale_bytes,
                  .heads = field.heads,
                  .is_head_major = field.layout.order != RowOrder::kRowHead};
  shape.fields = {field};
  return shape;
}

}  // namespace kvarto
