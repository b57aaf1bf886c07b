#include "cache/slice.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "cache/code_tiles.h"

namespace kvarto {
namespace {

// Where one head of one row lies: `num_units` units, `step_bytes` from one to the next.
struct HeadPlace {
  std::uint64_t offset_bytes = 0;
  std::uint64_t step_bytes = 0;
};

HeadPlace place_of(const FieldShape& field, std::uint64_t row, std::uint32_t head) {
  const StreamLayout& layout = field.layout;
  const std::uint64_t begin = field.offset_bytes + head * layout.head_stride_bytes;
  if (layout.order != RowOrder::kHeadTiles) {
    return {begin + row * layout.row_stride_bytes, field.unit_bytes};
  }
  return {begin + row / kTileRows * layout.row_stride_bytes + row % kTileRows * field.unit_bytes,
          std::uint64_t{kTileRows} * field.unit_bytes};
}

std::uint64_t footer_place(const FooterShape& footer, std::uint64_t rows, std::uint64_t row,
                           std::uint32_t head) {
  const std::uint64_t piece = footer.is_head_major ? head * rows + row : row * footer.heads + head;
  return footer.offset_bytes + piece * footer.piece_bytes;
}

template <typename Visit>
void for_each_head(const SliceShape& shape, RowRun rows, Visit visit) {
  for (std::uint64_t row = rows.first; row < rows.first + rows.count; ++row) {
    for (const FieldShape& field : shape.fields) {
      for (std::uint32_t head = 0; head < field.heads; ++head) visit(field, row, head);
    }
  }
}

// Copies one head, unit by unit where either side is transposed.
void copy_head(const FieldShape& from_field, const std::byte* from, HeadPlace from_place,
               std::byte* to, HeadPlace to_place) {
  const std::uint64_t unit = from_field.unit_bytes;
  if (from_place.step_bytes == unit && to_place.step_bytes == unit) {
    std::memmove(to + to_place.offset_bytes, from + from_place.offset_bytes, from_field.head_bytes);
    return;
  }
  for (std::uint64_t i = 0; i < from_field.head_bytes / unit; ++i) {
    std::memcpy(to + to_place.offset_bytes + i * to_place.step_bytes,
                from + from_place.offset_bytes + i * from_place.step_bytes, unit);
  }
}

// One head of one row of a slice.
struct RowHead {
  std::uint64_t row = 0;
  std::uint32_t head = 0;
};

struct CodedHead {
  const SliceShape& shape;
  const FieldShape& field;
  RowHead at;

  [[nodiscard]] std::uint64_t place() const {
    return place_of(field, at.row, at.head).offset_bytes;
  }
  [[nodiscard]] std::uint64_t scale_place() const {
    const FooterShape& footer = shape.footer;
    if (footer.heads != 1) return footer_place(footer, shape.rows, at.row, at.head);
    return footer_place(footer, shape.rows, at.row, 0) + field.scale_offset_bytes +
           at.head * field.scale_bytes;
  }
};

// The image of a head is what its codec writes: all its bytes, scales included, side by side.
// Layouts move images and never look into them.
constexpr std::size_t kMaxImageBytes = std::size_t{kMaxCodedWidth} * 2;

CodeRow code_row(const CodedHead& head, std::byte* slice) {
  const FieldShape& field = head.field;
  const CodeTiles tiles{*field.codes, field.layout, field.heads, field.width, head.shape.rows};
  return tiles.row_at(head.at.row, head.at.head, slice + field.offset_bytes);
}

void store_image(const CodedHead& to, const std::byte* image, std::byte* slice) {
  if (to.field.codes.has_value()) return store_code_row(code_row(to, slice), image);
  std::memcpy(slice + to.place(), image, to.field.head_bytes);
  if (to.field.scale_bytes == 0) return;
  std::memcpy(slice + to.scale_place(), image + to.field.head_bytes, to.field.scale_bytes);
}

void load_image(const CodedHead& from, const std::byte* slice, std::byte* image) {
  // Only read: one struct serves both directions.
  if (from.field.codes.has_value()) {
    return load_code_row(code_row(from, const_cast<std::byte*>(slice)), image);
  }
  std::memcpy(image, slice + from.place(), from.field.head_bytes);
  if (from.field.scale_bytes == 0) return;
  std::memcpy(image + from.field.head_bytes, slice + from.scale_place(), from.field.scale_bytes);
}

// One row of a slice.
template <typename Byte>
struct RowOf {
  const SliceShape& shape;
  Byte* slice;
  std::uint64_t row;
};

void copy_one_row(const RowOf<const std::byte>& from, const RowOf<std::byte>& to) {
  if (from.shape.fields.size() > 1) {
    const std::uint64_t stride = from.shape.fields[0].layout.row_stride_bytes;
    std::memmove(to.slice + to.row * stride, from.slice + from.row * stride, stride);
  } else {
    const FieldShape& field = from.shape.fields[0];
    const FieldShape& to_field = to.shape.fields[0];
    const bool is_in_code_tiles = field.codes.has_value() || to_field.codes.has_value();
    for (std::uint32_t head = 0; head < field.heads; ++head) {
      if (is_in_code_tiles) {
        std::byte image[kMaxImageBytes];
        load_image({from.shape, field, {from.row, head}}, from.slice, image);
        store_image({to.shape, to_field, {to.row, head}}, image, to.slice);
      } else {
        copy_head(field, from.slice, place_of(field, from.row, head), to.slice,
                  place_of(to_field, to.row, head));
      }
    }
  }
  const FooterShape& footer = from.shape.footer;
  if (footer.piece_bytes == 0) return;
  for (std::uint32_t head = 0; head < footer.heads; ++head) {
    std::memmove(to.slice + footer_place(to.shape.footer, to.shape.rows, to.row, head),
                 from.slice + footer_place(footer, from.shape.rows, from.row, head),
                 footer.piece_bytes);
  }
}

struct HeadTarget {
  std::byte* slice;
  HeadPlace place;
};

// Writes one head of one row from `from`, whatever its alignment.
void write_head(const FieldShape& field, const std::byte* from, Codec from_codec,
                const HeadTarget& to, const KernelTable& kernels) {
  std::byte* target = to.slice + to.place.offset_bytes;
  const std::uint64_t step = to.place.step_bytes;
  const std::uint64_t unit = field.unit_bytes;
  if (field.codec == from_codec && step == unit) {
    std::memcpy(target, from, field.head_bytes);
    return;
  }
  if (field.codec == from_codec) {
    for (std::uint32_t i = 0; i < field.width; ++i) {
      std::memcpy(target + i * step, from + i * unit, unit);
    }
    return;
  }
  // Through a slab in L1: sources may lie at odd addresses, and 16 bits become 16 others.
  constexpr std::uint32_t kSlabFloats = 256;
  alignas(64) float slab[kSlabFloats];
  const std::uint64_t from_bytes = codec_info(from_codec).element_bits / 8;
  const auto to_f32 = kernels.to_f32[static_cast<int>(element_of(from_codec))];
  const auto element = static_cast<int>(element_of(field.codec));
  const auto from_f32 = step == unit ? kernels.from_f32[element] : kernels.from_f32_tile[element];
  for (std::uint32_t done = 0; done < field.width; done += kSlabFloats) {
    const std::uint32_t count = std::min(kSlabFloats, field.width - done);
    to_f32(from + done * from_bytes, slab, count);
    from_f32(slab, target + done * step, count);
  }
}

// Reads one head of one row whose elements have no scales.
void read_head(const FieldShape& field, const std::byte* from, std::uint64_t step_bytes,
               float* out) {
  for (std::uint32_t i = 0; i < field.width; ++i, from += step_bytes) {
    if (field.codec == Codec::kF32) {
      std::memcpy(out + i, from, sizeof(float));
      continue;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof bits);
    out[i] = field.codec == Codec::kF16 ? float_from_f16(bits) : float_from_bf16(bits);
  }
}

// Whether the bytes of a head lie side by side in the slice.
bool has_image(const FieldShape& field) {
  return field.scale_bytes == 0 && field.layout.order != RowOrder::kHeadTiles &&
         field.layout.order != RowOrder::kHeadValueTiles;
}

// One head of elements without scales, at any address.
struct PlainHead {
  const std::byte* begin = nullptr;
  Codec codec = Codec::kF32;
};

void write_coded_head(const CodedHead& to, const PlainHead& source, std::byte* slice,
                      const KernelTable& kernels) {
  alignas(64) float slab[kMaxCodedWidth];
  kernels.decode[static_cast<std::size_t>(source.codec)](source.begin, slab, to.field.width);
  const EncodeFunction encode = kernels.encode[static_cast<std::size_t>(to.field.codec)];
  if (has_image(to.field)) return encode(slab, slice + to.place(), to.field.width);
  std::byte image[kMaxImageBytes];
  encode(slab, image, to.field.width);
  store_image(to, image, slice);
}

void read_coded_head(const CodedHead& from, const std::byte* slice, float* out,
                     const KernelTable& kernels) {
  const DecodeFunction decode = kernels.decode[static_cast<std::size_t>(from.field.codec)];
  if (has_image(from.field)) return decode(slice + from.place(), out, from.field.width);
  std::byte image[kMaxImageBytes];
  load_image(from, slice, image);
  decode(image, out, from.field.width);
}

}  // namespace

Element element_of(Codec codec) {
  switch (codec) {
    case Codec::kF32:
      return Element::kF32;
    case Codec::kF16:
      return Element::kF16;
    default:
      return Element::kBF16;
  }
}

void clear_rows(const SliceShape& shape, std::byte* slice, RowRun rows) {
  if (shape.fields.size() > 1) {
    // Row by row: scales and padding lie inside the stride.
    const std::uint64_t stride = shape.fields[0].layout.row_stride_bytes;
    std::memset(slice + rows.first * stride, 0, rows.count * stride);
  } else {
    for_each_head(shape, rows, [&](const FieldShape& field, std::uint64_t row, std::uint32_t head) {
      if (field.codes.has_value()) {
        constexpr std::byte kZeros[kMaxImageBytes] = {};
        return store_image({shape, field, {row, head}}, kZeros, slice);
      }
      const HeadPlace place = place_of(field, row, head);
      if (place.step_bytes == field.unit_bytes) {
        std::memset(slice + place.offset_bytes, 0, field.head_bytes);
        return;
      }
      for (std::uint64_t i = 0; i < field.head_bytes / field.unit_bytes; ++i) {
        std::memset(slice + place.offset_bytes + i * place.step_bytes, 0, field.unit_bytes);
      }
    });
  }
  const FooterShape& footer = shape.footer;
  if (footer.piece_bytes == 0) return;
  for (std::uint64_t row = rows.first; row < rows.first + rows.count; ++row) {
    for (std::uint32_t head = 0; head < footer.heads; ++head) {
      std::memset(slice + footer_place(footer, shape.rows, row, head), 0, footer.piece_bytes);
    }
  }
}

void write_rows(const SliceShape& shape, std::byte* slice, RowRun rows, const SourceRows& source,
                const KernelTable& kernels) {
  const std::uint64_t element_bytes = codec_info(source.codec).element_bits / 8;
  const std::uint64_t row_stride = shape.row_elements() * element_bytes;
  const std::byte* field_begin = source.begin;
  for (const FieldShape& field : shape.fields) {
    // Head by head: the rows of one head share the lines of its tiles.
    for (std::uint32_t head = 0; head < field.heads; ++head) {
      for (std::uint64_t i = 0; i < rows.count; ++i) {
        const std::byte* from = field_begin + i * row_stride;
        const RowHead at{rows.first + i, head};
        if (is_plain(field.codec)) {
          write_head(field, from, source.codec, {slice, place_of(field, at.row, head)}, kernels);
        } else {
          write_coded_head({shape, field, at}, {from, source.codec}, slice, kernels);
        }
      }
      field_begin += field.width * element_bytes;
    }
  }
}

void read_rows(const SliceShape& shape, const ReadRows& from, float* out,
               const KernelTable& kernels) {
  for_each_head(shape, from.rows,
                [&](const FieldShape& field, std::uint64_t row, std::uint32_t head) {
                  if (is_plain(field.codec)) {
                    const HeadPlace place = place_of(field, row, head);
                    read_head(field, from.slice + place.offset_bytes, place.step_bytes, out);
                  } else {
                    read_coded_head({shape, field, {row, head}}, from.slice, out, kernels);
                  }
                  out += field.width;
                });
}

void copy_row(const SliceShape& shape, const std::byte* from, std::uint64_t from_row, std::byte* to,
              std::uint64_t to_row) {
  copy_one_row({shape, from, from_row}, {shape, to, to_row});
}

void convert_slice(const SliceShape& from_shape, const std::byte* from, const SliceShape& to_shape,
                   std::byte* to) {
  for (std::uint64_t row = 0; row < from_shape.rows; ++row) {
    copy_one_row({from_shape, from, row}, {to_shape, to, row});
  }
}

}  // namespace kvarto
