// How the rows of one stream lie inside a block. Plain data, and the pure function that chooses it.

#pragma once

#include <cstdint>
#include <string_view>

#include "kvarto/result.h"
#include "kvarto/stream.h"

namespace kvarto {

// What the user asks for.
enum class Layout : std::uint8_t {
  kGeneric,   // token-major rows: [row][head][element], as most engines keep them
  kHardware,  // head-major, tiles for this machine's vector units
};
[[nodiscard]] std::string_view layout_name(Layout layout);

// The order of one stream's elements in a block of R rows, H heads, D elements a head.
enum class RowOrder : std::uint8_t {
  kRowHead,    // [row][head][element]
  kHeadRow,    // [head][row][element]
  kHeadTiles,  // [head][row / 16][element][row % 16]: keys transposed in tiles of kTileRows rows,
               // so that one vector holds one element of 16 rows
  // Values of integer codes (int8, q8_0, int4, q4_0) in tiles, so that one 32-bit word holds what
  // one 8-bit dot product takes: four rows of an element. 8 bits:
  //   [head][row / 16][element / 16][row % 16 / 4][element % 16][row % 4]
  // 4 bits: [head][row / 16][element / 16][row % 16 / 8][element % 16][4 bytes], byte j with row
  // 8 o + j of its octet o in the low half and row 8 o + 4 + j in the high half.
  kHeadValueTiles,
};
// kHeadTiles of integer codes groups elements likewise. 8 bits: [head][row / 16][element / 4]
// [row % 16][element % 4]; 4 bits: [head][row / 16][element / 8][row % 16][4 bytes], byte j with
// element 8 i + j in the low half and 8 i + 4 + j in the high half. In both kinds of tiles codes
// are stored without sign, 8-bit codes plus 128, and the scales follow all codes of the block:
// [head][row / 16][group of elements][row % 16], in the codec's own type.

// Rows of one transposed tile: the f32 lanes of a 512-bit vector.
inline constexpr std::uint32_t kTileRows = 16;

// Layout of one stream in a block, in bytes. The scales of a codec lie in its rows, as the codec
// writes them (codec.h); those of streams with `scales_in_footer` follow all rows of the block, in
// the order [head][row] for kHead* and [row][head] for kRowHead.
struct StreamLayout {
  RowOrder order = RowOrder::kRowHead;
  std::uint64_t head_stride_bytes = 0;  // between heads: inside a row (kRowHead) or of a block
  std::uint64_t row_stride_bytes = 0;  // between rows of one head, or tiles; of codes, scales apart
};

// Chooses the order for a single-field stream of `rows_per_block` rows. `is_key` says that the
// stream is multiplied with queries (its rows are summed over elements), else it is accumulated.
// Tiles need rows_per_block to be a multiple of kTileRows and a stream that is read in runs (access
// all or window): keys of f32, f16 or bf16, and keys and values (fields of role kValue) of int8,
// q8_0, int4 or q4_0 with heads of a multiple of 16 elements. Every other case under kHardware is
// kHeadRow. Never changes bytes.
[[nodiscard]] StreamLayout choose_layout(const Stream& stream, bool is_key, Layout layout,
                                         std::uint64_t rows_per_block);

}  // namespace kvarto
