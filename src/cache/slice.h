// How the rows of one stream lie in its slice of a block, and what is done with them: clear, write,
// read, convert. Plain functions over raw pointers; KvCache has checked everything before.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/code_format.h"
#include "kernels/kernels.h"
#include "kvarto/layout.h"
#include "kvarto/stream.h"

namespace kvarto {

// One field of a row, or several of one codec that are read as one.
struct FieldShape {
  Codec codec{};
  std::uint32_t heads = 0;
  std::uint32_t width = 0;       // elements a head
  std::uint64_t head_bytes = 0;  // of one head in its row
  // What kHeadTiles transposes: an element, or a byte of packed elements.
  std::uint32_t unit_bytes = 1;
  std::uint64_t offset_bytes = 0;  // of row 0, head 0 in the slice
  StreamLayout layout;
  // Scales of one head that lie in the footer, and where those of head 0 begin in a piece of it.
  std::uint64_t scale_bytes = 0;
  std::uint64_t scale_offset_bytes = 0;
  // Rows in tiles of integer codes; their scales follow the tiles of all heads.
  std::optional<CodeFormat> codes;
};

// Scales (and padding) that do not lie inside the rows: one piece for each row, or each row and
// head.
struct FooterShape {
  std::uint64_t offset_bytes = 0;
  std::uint64_t piece_bytes = 0;  // 0 = none
  std::uint32_t heads = 1;
  bool is_head_major = false;  // [head][row] instead of [row][head]
};

struct SliceShape {
  std::uint64_t rows = 0;
  std::vector<FieldShape> fields;
  FooterShape footer;
  // Whether write and read are possible: `kernels` have the codecs of all fields.
  [[nodiscard]] bool is_coded_by(const KernelTable& kernels) const;
  // Elements of one row, all fields and heads.
  [[nodiscard]] std::uint64_t row_elements() const;
};

[[nodiscard]] constexpr bool is_plain(Codec codec) {
  return codec == Codec::kF32 || codec == Codec::kF16 || codec == Codec::kBF16;
}

// The widest head of a codec with scales that can be written and read: it goes through scratch
// memory of this many floats.
inline constexpr std::uint32_t kMaxCodedWidth = 4096;

// Requires: is_plain(codec).
[[nodiscard]] Element element_of(Codec codec);

// The shape of a slice of `rows` rows. Fields of one plain codec and one head each become one; rows
// of several other fields stay row by row with the scales behind each field, or all in the footer
// if the stream says so. `is_key` as in choose_layout().
[[nodiscard]] SliceShape slice_shape(const Stream& stream, bool is_key, Layout layout,
                                     std::uint64_t rows);

// A run of rows of one slice.
struct RowRun {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

// Sets all bytes of some rows to zero, footers included.
void clear_rows(const SliceShape& shape, std::byte* slice, RowRun rows);

// Rows to be written: [count][row_elements] of `codec` without gaps, at any address.
struct SourceRows {
  const std::byte* begin = nullptr;
  Codec codec = Codec::kF32;
};

// Writes rows, encoded as the slice's codecs say. Requires: shape.is_coded_by(kernels).
void write_rows(const SliceShape& shape, std::byte* slice, RowRun rows, const SourceRows& source,
                const KernelTable& kernels);

// Rows of one slice to be read.
struct ReadRows {
  const std::byte* slice = nullptr;
  RowRun rows;
};

// Reads rows as f32, [count][row_elements]. Requires: shape.is_coded_by(kernels).
void read_rows(const SliceShape& shape, const ReadRows& from, float* out,
               const KernelTable& kernels);

// Copies row `from_row` of one slice to row `to_row` of another of the same shape; they may be the
// same slice.
void copy_row(const SliceShape& shape, const std::byte* from, std::uint64_t from_row, std::byte* to,
              std::uint64_t to_row);

// Copies all rows from one layout to another. Requires: equal rows and fields, layouts apart.
void convert_slice(const SliceShape& from_shape, const std::byte* from, const SliceShape& to_shape,
                   std::byte* to);

}  // namespace kvarto
