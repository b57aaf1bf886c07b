// One chunk of rows against all queries of one KV head: score, softmax,
// accumulate.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/row_chunk.h"
#include "base/code_format.h"
#include "kernels/kernels.h"
#include "kvarto/attention.h"

namespace kvarto {

// Query tiles of 8, then the smallest of 1, 2, 4, 8 that holds the rest.
// Queries are padded with zeros to whole tiles.
struct QueryTile {
  std::uint32_t first = 0;  // padded query number
  std::uint32_t size = 0;
  std::uint32_t kernel = 0;  // 0..3 for sizes 1, 2, 4, 8
};
[[nodiscard]] std::vector<QueryTile> tile_queries(std::uint32_t num_queries);
// Tiles of 8 alone.
[[nodiscard]] std::vector<QueryTile> whole_query_tiles(std::uint32_t num_queries);

// A stream in tiles of integer codes.
struct CodeStream {
  bool is_tiled = false;
  CodeFormat format;
  std::uint64_t scales_begin = 0;      // bytes from the slice of a block to its scales
  std::uint64_t head_scale_bytes = 0;  // of all rows of a block
  std::uint64_t tile_scale_bytes = 0;
};

// Rows that are K and V, read in place or from one copy in f32 or f16 (row_slab.h).
struct RowSlab {
  bool is_used = false;
  bool is_direct = false;         // fills read the cache; else rows are decoded first
  bool is_read_in_place = false;  // no copy
  Element element{};              // of the cache, where fills read it
  DecodeFunction decode = nullptr;
  DecodeFunction decode_tail = nullptr;
  std::uint32_t width = 0;       // elements of the first field
  std::uint32_t tail_width = 0;  // and of the second
  std::uint64_t row_bytes = 0;
  std::uint64_t tail_bytes = 0;
  std::int64_t tail_offset_bytes = 0;  // from a row to its second field
};

// What is the same for every pass of one call.
struct PassShape {
  const KernelTable* kernels = nullptr;
  Element k_element{};  // that kernels read: of the cache, or of the slab
  Element v_element{};
  // Formats that kernels do not read: decode rows into an f32 slab first. Null: read in place.
  DecodeFunction k_fill = nullptr;
  DecodeFunction v_fill = nullptr;
  std::uint64_t k_row_bytes = 0;  // of one head
  std::uint64_t v_row_bytes = 0;
  CodeStream k_codes;
  CodeStream v_codes;
  RowSlab slab;
  bool is_integer = false;        // codes are multiplied as they are, else filled into f32
  std::uint32_t query_parts = 2;  // bytes of a query element in integer arithmetic
  bool is_tiled = false;          // keys in transposed tiles
  std::uint32_t qk_dim = 0;
  std::uint32_t v_dim = 0;
  std::uint32_t q_stride = 0;    // floats of one packed query
  std::uint32_t acc_stride = 0;  // floats of one accumulator
  float query_scale = 1;         // scale x log2(e): scores are in units of log2
  float soft_cap = 0;            // x log2(e)
  // With several query tiles, parts of a chunk are brought to the first-level cache once and used
  // by all of them: 16 KiB at dim 128, half of what a core that is shared by two threads has.
  std::uint32_t part_tiles = 2;
  std::uint32_t part_elements = 64;
};

// Running attention state of `num_padded` queries of one KV head.
struct HeadState {
  float* acc;         // [num_padded][acc_stride]
  float* sum;         // [num_padded][kPadFloats]
  float* maximum;     // [num_padded]
  float* correction;  // [num_padded]
  float* share;       // [num_padded]
};
// Floats of one HeadState, and its place in a buffer of them.
[[nodiscard]] std::size_t head_state_floats(const PassShape& shape, std::uint32_t num_padded);
[[nodiscard]] HeadState head_state_at(const PassShape& shape, std::uint32_t num_padded,
                                      float* buffer);
void clear(const PassShape& shape, std::uint32_t num_padded, const HeadState& state);

// Packs queries (rows of qk_dim floats) for all tiles; `out` holds num_padded *
// q_stride floats.
void pack_queries(const PassShape& shape, std::span<const QueryTile> tiles,
                  std::span<const float* const> rows, float* out);

// Bytes for the keys of one chunk, joined for several query tiles; 0 where the kernels have no use
// for that.
[[nodiscard]] std::size_t joined_key_bytes(const PassShape& shape, std::size_t num_tiles);

struct PassArgs {
  const RowChunk* chunk = nullptr;
  const std::byte* k = nullptr;  // slice of this head
  const std::byte* v = nullptr;
  const RowChunk* next_chunk = nullptr;  // rows that the next pass reads; null: no prefetch
  const std::byte* next_k = nullptr;
  const std::byte* next_v = nullptr;
  const std::byte* k_scales = nullptr;  // of this head, where codes are tiled
  const std::byte* v_scales = nullptr;
  const std::byte* next_k_scales = nullptr;
  const std::byte* next_v_scales = nullptr;
  float* code_scratch = nullptr;               // code_scratch_floats()
  float* slab = nullptr;                       // slab_floats(); for formats that are filled
  RowChunk* slab_chunk = nullptr;              // scratch, likewise
  std::byte* joined = nullptr;                 // joined_key_bytes(); null: keys are read in place
  const float* q = nullptr;                    // packed
  float* scores = nullptr;                     // [num_padded][kChunkRows]
  const float* slopes = nullptr;               // [num_padded], log2 units; null: no ALiBi
  float* distances = nullptr;                  // [num_padded]
  const std::uint32_t* query_first = nullptr;  // as in SoftmaxArgs
  const std::uint32_t* query_end = nullptr;
};
// The softmax of all scores of a pass.
[[nodiscard]] SoftmaxArgs softmax_of_pass(const PassShape& shape, std::uint32_t num_padded,
                                          const PassArgs& args, const HeadState& state);

void run_pass(const PassShape& shape, std::span<const QueryTile> tiles, const PassArgs& args,
              const HeadState& state);

}  // namespace kvarto
