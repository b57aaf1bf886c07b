#include "attention/fill.h"

#include <algorithm>

#include "attention/code_pass.h"
#include "attention/row_slab.h"
#include "kvarto/codec.h"

namespace kvarto {
namespace {

constexpr std::uint64_t kLineBytes = 64;

void prefetch(const std::byte* begin, std::uint64_t num_bytes) {
  constexpr int kForReading = 0;
  constexpr int kSecondLevel = 2;
  for (std::uint64_t at = 0; at < num_bytes; at += kLineBytes) {
    __builtin_prefetch(begin + at, kForReading, kSecondLevel);
  }
}

struct Fill {
  DecodeFunction decode = nullptr;
  std::uint32_t width = 0;
  std::uint64_t row_bytes = 0;
  std::uint32_t stride = 0;         // floats of a row in the slab
  const std::byte* rows = nullptr;  // slice of this head
  const std::uint64_t* offsets = nullptr;
  const std::byte* next = nullptr;  // null: no prefetch
  const std::uint64_t* next_offsets = nullptr;
};

// Fills the slab with rows [first, first + count); places[i] says where row first + i lies.
void fill_rows(const Fill& fill, std::uint32_t first, std::uint32_t count, float* slab,
               std::uint64_t* places) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (fill.next != nullptr) prefetch(fill.next + fill.next_offsets[first + i], fill.row_bytes);
    const std::size_t place = std::size_t{i} * fill.stride;
    fill.decode(fill.rows + fill.offsets[first + i], slab + place, fill.width);
    places[i] = place * sizeof(float);
  }
}

}  // namespace

std::size_t slab_floats(const PassShape& shape) {
  return std::max(row_slab_floats(shape),
                  std::size_t{kChunkRows} * std::max(shape.q_stride, shape.acc_stride));
}

namespace {

void fill_key_tiles(const PassShape& shape, const PassArgs& args) {
  const std::size_t tile_floats = std::size_t{kKeyTileRows} * shape.qk_dim;
  for (std::uint32_t tile = 0; tile < args.chunk->num_keys; ++tile) {
    args.slab_chunk->k[tile] = tile * tile_floats * sizeof(float);
    if (args.next_chunk == nullptr) continue;
    prefetch(args.next_k + args.next_chunk->k[tile], tile_floats * shape.k_codes.format.bits / 8);
    prefetch(args.next_k_scales + args.next_chunk->k_scales[tile], shape.k_codes.tile_scale_bytes);
  }
  fill_code_keys({shape, *args.chunk, args.k, args.k_scales, args.code_scratch, args.slab});
}

void fill_value_tiles(const PassShape& shape, const PassArgs& args) {
  const std::size_t tile_floats = std::size_t{kKeyTileRows} * shape.v_dim;
  for (std::uint32_t row = 0; row < args.chunk->end_row; ++row) {
    args.slab_chunk->v[row] = std::uint64_t{row} * shape.acc_stride * sizeof(float);
    if (args.next_chunk == nullptr || row % kKeyTileRows != 0) continue;
    const std::uint32_t tile = row / kKeyTileRows;
    prefetch(args.next_v + args.next_chunk->v[tile], tile_floats * shape.v_codes.format.bits / 8);
    prefetch(args.next_v_scales + args.next_chunk->v_scales[tile], shape.v_codes.tile_scale_bytes);
  }
  fill_code_values(
      {shape, *args.chunk, args.v, args.v_scales, args.code_scratch, args.slab, shape.acc_stride});
}

PassArgs reading_slab(const PassArgs& args) {
  PassArgs filled = args;
  filled.slab_chunk->num_keys = args.chunk->num_keys;
  filled.slab_chunk->first_row = args.chunk->first_row;
  filled.slab_chunk->end_row = args.chunk->end_row;
  filled.chunk = args.slab_chunk;
  filled.next_chunk = nullptr;
  return filled;
}

}  // namespace

PassArgs with_filled_key_tiles(const PassShape& shape, const PassArgs& args) {
  fill_key_tiles(shape, args);
  PassArgs filled = reading_slab(args);
  filled.k = reinterpret_cast<const std::byte*>(args.slab);
  return filled;
}

PassArgs with_filled_keys(const PassShape& shape, const PassArgs& args, std::uint32_t first) {
  Fill fill;
  fill.decode = shape.k_fill;
  fill.width = shape.qk_dim;
  fill.row_bytes = shape.k_row_bytes;
  fill.stride = shape.q_stride;
  fill.rows = args.k;
  fill.offsets = args.chunk->k.data();
  if (args.next_chunk != nullptr) {
    fill.next = args.next_k;
    fill.next_offsets = args.next_chunk->k.data();
  }
  const std::uint32_t count = std::min(kFilledKeys, args.chunk->num_keys - first);
  fill_rows(fill, first, count, args.slab, args.slab_chunk->k.data());
  PassArgs filled = reading_slab(args);
  filled.scores = args.scores + first;
  filled.slab_chunk->num_keys = count;
  filled.k = reinterpret_cast<const std::byte*>(args.slab);
  return filled;
}

PassArgs with_filled_values(const PassShape& shape, const PassArgs& args) {
  if (shape.v_codes.is_tiled) {
    fill_value_tiles(shape, args);
    PassArgs filled = reading_slab(args);
    filled.v = reinterpret_cast<const std::byte*>(args.slab);
    return filled;
  }
  Fill fill;
  fill.decode = shape.v_fill;
  fill.width = shape.v_dim;
  fill.row_bytes = shape.v_row_bytes;
  fill.stride = shape.acc_stride;
  fill.rows = args.v;
  fill.offsets = args.chunk->v.data();
  if (args.next_chunk != nullptr) {
    fill.next = args.next_v;
    fill.next_offsets = args.next_chunk->v.data();
  }
  const std::uint32_t first = args.chunk->first_row;
  fill_rows(fill, first, args.chunk->end_row - first, args.slab, args.slab_chunk->v.data() + first);
  PassArgs filled = reading_slab(args);
  filled.v = reinterpret_cast<const std::byte*>(args.slab);
  return filled;
}

}  // namespace kvarto
