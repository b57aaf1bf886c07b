// Tracks: streams that share one block table, and the bytes of their blocks.
//
// Streams of all layers with equal tokens per row, equal birth and lifetime form a track. A block
// of a track holds `rows_per_block` consecutive rows of every stream of the track, in every layer
// that owns it. These functions are the only place where rows become block bytes: the cache
// allocates with them, the planner predicts with them.

#pragma once

#include <cstdint>
#include <vector>

#include "kvarto/model_spec.h"

namespace kvarto {

// Alignment of one stream's rows of one layer inside a block: one cache line, so that no line is
// shared by two layers or streams.
inline constexpr std::uint64_t kSliceAlignBytes = 64;

// Bytes of bookkeeping that the cache keeps for one block: reference count and queue link in the
// pool (2 x 4 bytes) and one entry in a sequence's block table (4 bytes).
inline constexpr std::uint64_t kMetadataBytesPerBlock = 12;

// What the cache takes where the user says nothing: tokens a block (vLLM's, and a multiple of every
// tile), and tokens appended at once, which windows must hold beside themselves (llama.cpp's).
inline constexpr std::uint64_t kDefaultBlockSize = 16;
inline constexpr std::uint64_t kDefaultMicroBatch = 512;

// The storage of one track's blocks is a whole number of pages of the operating system.
inline constexpr std::uint64_t kPoolAlignBytes = 4096;

// One stream of a track, in every layer of one layer group.
struct TrackStream {
  std::uint32_t group = 0;   // index into ModelSpec::groups
  std::uint32_t stream = 0;  // index into LayerGroup::streams
  std::uint32_t layers = 0;  // layers that own such rows
  // Bytes of this stream in one block of one layer. Sum of parts = slice_bytes.
  std::uint64_t payload_bytes = 0;
  std::uint64_t scale_bytes = 0;
  std::uint64_t padding_bytes = 0;
  [[nodiscard]] std::uint64_t slice_bytes() const {
    return payload_bytes + scale_bytes + padding_bytes;
  }
};

struct Track {
  std::uint64_t tokens_per_row = 1;
  std::uint64_t birth_delay_tokens = 0;
  Lifetime lifetime;
  std::uint64_t rows_per_block = 0;
  std::vector<TrackStream> streams;
  std::uint64_t block_bytes = 0;  // all streams, all layers

  // Rows born after `tokens` tokens, dead ones included. Not for constant tracks.
  [[nodiscard]] std::uint64_t born_rows(std::uint64_t tokens) const {
    return tokens <= birth_delay_tokens ? 0 : (tokens - birth_delay_tokens) / tokens_per_row;
  }
  // Tokens that one block spans; 0 for constant tracks.
  [[nodiscard]] std::uint64_t tokens_per_block() const {
    return lifetime.kind == Lifetime::Kind::kConstant ? 0 : rows_per_block * tokens_per_row;
  }
};

// The tracks of a model whose types are set (with_types). Streams that a layer borrows and streams
// of one step take no part. `block_size` is tokens a block; a block of a compressed stream spans
// max(block_size, tokens_per_row) tokens. `tensor_parallel` divides head-sharded fields.
// Errors: kInvalidArgument for block_size 0, tensor_parallel 0, or an overflow.
[[nodiscard]] Result<std::vector<Track>> make_tracks(const ModelSpec& model,
                                                     std::uint64_t block_size,
                                                     std::uint32_t tensor_parallel = 1);

// Least common multiple of the tokens that the tracks' blocks span: prefixes are shared in units
// of it. 1 if there are only constant tracks; saturates at 2^63.
[[nodiscard]] std::uint64_t share_unit_tokens(const std::vector<Track>& tracks);

// Blocks that one sequence of exactly `tokens` tokens holds.
[[nodiscard]] std::uint64_t resident_blocks(const Track& track, std::uint64_t tokens);

// Blocks that a pool must have so that one sequence can grow to `tokens` tokens when at most
// `chunk_tokens` tokens are appended at once. Monotone in `tokens`.
[[nodiscard]] std::uint64_t peak_blocks(const Track& track, std::uint64_t tokens,
                                        std::uint64_t chunk_tokens);

// Bytes of storage of `num_blocks` blocks: their bytes rounded up to kPoolAlignBytes. Bookkeeping
// (kMetadataBytesPerBlock) comes on top. Errors: kInvalidArgument for an overflow.
[[nodiscard]] Result<std::uint64_t> pool_bytes(const Track& track, std::uint64_t num_blocks);

// Bytes of the squares of one stream in one layer, where a cache keeps them
// (CacheOptions::keeps_squares): a mean and a peak in f32 for every element of a row. 0 for streams
// that have none: those of several fields, of another type than f16, of constant rows or of one
// step.
[[nodiscard]] std::uint64_t squares_bytes(const Stream& stream);

// Heads of a head-sharded field on one rank: ceil(heads / ranks), at least 1.
[[nodiscard]] std::uint32_t heads_on_rank(std::uint32_t heads, std::uint32_t tensor_parallel);

}  // namespace kvarto
