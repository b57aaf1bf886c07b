// Kernels for rows of integer codes: 8 or 4 bits an element, one scale a row and group of elements.
//
// The value of an element is (code - zero point) * scale. Both products of attention are sums of
// code x operand, where the operand is a query, or a probability times the scales of its row, in
// 16-bit (or 8-bit) integers: exact in 32 bits, converted to f32 once a group or chunk. The zero
// point leaves the sums exactly: sum (c - z) x = sum c x - z sum x.
//
// Data only; included by code compiled with per-file instruction sets, as kernels.h is.

#pragma once

#include <cstddef>
#include <cstdint>

namespace kvarto {

struct SoftmaxArgs;

// Codes are stored without sign: 8-bit codes have zero point 128, 4-bit codes 8.
inline constexpr int kNumCodeWidths = 2;    // 8, 4 bits
inline constexpr int kNumOperandParts = 2;  // operands of 1 byte, of 2 bytes
// Operands are integers of at most this magnitude: two signed bytes, low and high, hold them.
inline constexpr std::int32_t kOperandMax16 = 127 * 256 + 127;
inline constexpr std::int32_t kOperandMax8 = 127;

// A packed tile of `tile` queries, in 32-bit words, for rows of `dim` elements:
//   [parts][dim / 4][tile]   the bytes of four consecutive elements, low bytes first, then high
//   [num_groups][tile]       minus zero point x sum of the group's codes
//   [tile]                   f32 scale of the query
struct PackQueryCodesArgs {
  const float* const* rows = nullptr;  // [num_queries] -> [dim]
  std::uint32_t num_queries = 0;       // the other queries of the tile are zero
  std::uint32_t tile = 0;
  std::uint32_t dim = 0;  // a multiple of 16
  std::uint32_t group_elements = 0;
  std::uint32_t parts = 2;  // bytes of one operand
  std::int32_t zero_point = 0;
  float scale = 1;
  std::int32_t* out = nullptr;
};
using PackQueryCodesFunction = void (*)(const PackQueryCodesArgs&);

// Brings the scales of a chunk into f32, [num_groups][64 rows].
struct LoadScalesArgs {
  const std::byte* from = nullptr;
  const std::uint64_t* offsets = nullptr;  // of `count` tiles: [num_groups][16] scales
  const std::byte* next = nullptr;         // of the next call, as in ScoreArgs
  const std::uint64_t* next_offsets = nullptr;
  std::uint32_t count = 0;
  std::uint32_t num_groups = 0;
  bool is_f16 = false;  // else f32
  float* out = nullptr;
};
using LoadScalesFunction = void (*)(const LoadScalesArgs&);

// scores[g][row] = sum over d of q[g][d] * k[row][d].
//   8-bit codes: k + offsets[i] is a tile [dim / 4][16 rows][4]
//   4-bit codes: [dim / 8][16 rows][4 bytes], byte j = elements j (low bits) and 4 + j (high bits)
struct CodeScoreArgs {
  const std::byte* k = nullptr;
  const std::uint64_t* offsets = nullptr;  // bytes; `count` of them
  const std::byte* next_k = nullptr;       // as in ScoreArgs
  const std::uint64_t* next_offsets = nullptr;
  const float* row_scales = nullptr;  // [num_groups][kChunkRows], from the first tile's rows on
  const std::int32_t* q = nullptr;    // packed
  float* scores = nullptr;            // [query tile][kChunkRows]
  std::uint32_t count = 0;
  std::uint32_t dim = 0;
  std::uint32_t group_elements = 0;
};
using CodeScoreFunction = void (*)(const CodeScoreArgs&);

// Softmax of a chunk, its probabilities as operands. A probability is relative to the largest of
// its query in this chunk; the operand of a row and group is probability x scale of the row in
// units of the group's largest scale / kOperandMax16.
struct WeighArgs {
  // Maximum, correction and sum are updated; `share` is not used. Scores are left as they may be.
  const SoftmaxArgs* softmax = nullptr;
  const float* row_scales = nullptr;  // [num_groups][kChunkRows]; outside the rows: any bits
  std::uint32_t num_groups = 0;
  std::int32_t zero_point = 0;
  // Lines of each of the four next tiles of values that are prefetched between the queries: with
  // query tiles of 8, the last quarter of 8-bit codes, for which accumulate would have to ask too
  // fast. Null: none.
  const std::byte* next_v = nullptr;
  const std::uint64_t* next_offsets = nullptr;
  std::uint32_t next_first_byte = 0;
  std::uint32_t next_lines = 0;
  // [num_groups][num_queries][2][kChunkRows], low bytes and high bytes, 0 for rows that do not
  // count; the four bytes of rows 16 t + 4 j ... + 3 are word 4 j + t of their 64
  std::int8_t* codes = nullptr;
  float* scales = nullptr;        // [num_groups][num_queries]: value of one unit
  std::int32_t* zeros = nullptr;  // [num_groups][num_queries]: minus zero point x sum of codes
};
using WeighFunction = void (*)(const WeighArgs&);

// acc[g][d] = acc[g][d] * correction[g] + sum over rows of operand[g][row] * code[row][d], for the
// elements [first_element, first_element + dim) of a head.
//   8-bit codes: v + offsets[i] is a tile [element / 16][row / 4][16 elements][4 rows]
//   4-bit codes: [element / 16][row / 8][16 elements][4 bytes], byte j = rows j (low bits) and
//                4 + j (high bits) of the eight
struct CodeAccumulateArgs {
  const std::byte* v = nullptr;
  const std::uint64_t* offsets = nullptr;  // bytes; `count` of them
  const std::byte* next_v = nullptr;
  const std::uint64_t* next_offsets = nullptr;
  const std::int8_t* codes = nullptr;  // as in WeighArgs, from the first query of the tile on
  const float* scales = nullptr;
  const std::int32_t* zeros = nullptr;
  const float* correction = nullptr;  // [query tile]
  float* acc = nullptr;               // [query tile][acc_stride], of the whole head
  std::uint32_t count = 0;            // tiles; 1 to 4
  std::uint32_t first_element = 0;    // a multiple of 16
  std::uint32_t dim = 0;              // a multiple of 16
  std::uint32_t group_elements = 0;
  std::uint32_t num_queries = 0;  // of which each group has operands
  std::uint32_t acc_stride = 0;
};
using CodeAccumulateFunction = void (*)(const CodeAccumulateArgs&);

// One tile of codes to f32, exactly: (code - zero point) * scale.
//   keys:   out is [dim][16 rows]
//   values: out is [16 rows][stride]
struct FillCodesArgs {
  const std::byte* codes = nullptr;
  const float* row_scales = nullptr;  // [num_groups][kChunkRows], from the tile's first row on
  std::uint32_t dim = 0;
  std::uint32_t group_elements = 0;
  std::int32_t zero_point = 0;
  std::uint32_t stride = 0;
  float* out = nullptr;
};
using FillCodesFunction = void (*)(const FillCodesArgs&);

// Index 0: 8-bit codes, 1: 4-bit codes; then operands of 1 or 2 bytes; then query tiles as in
// KernelTable.
struct CodeKernels {
  const char* isa = nullptr;
  // Faster than f32 arithmetic on filled rows: in decode; for the many queries of a prefill.
  bool is_fast = false;
  bool is_fast_in_prefill = false;
  // Operands, of one byte and of two, are 16-bit integers in pairs instead of bytes. In a word of
  // queries are elements 0 and 2 of four, in the word in the place of its high bytes 1 and 3; in
  // those of weights rows 0 and 2, and 1 and 3, of four.
  bool has_paired_operands = false;
  PackQueryCodesFunction pack_queries = nullptr;
  LoadScalesFunction load_scales = nullptr;
  CodeScoreFunction score[kNumCodeWidths][kNumOperandParts][4] = {};
  WeighFunction weigh = nullptr;
  CodeAccumulateFunction accumulate[kNumCodeWidths][4] = {};
  // The peak of the dot products; null where there are none.
  float (*dot_loop)(std::size_t rounds) = nullptr;
  std::uint64_t dot_loop_operations = 0;  // of one round
  FillCodesFunction fill_keys[kNumCodeWidths] = {};
  FillCodesFunction fill_values[kNumCodeWidths] = {};
};

}  // namespace kvarto
