#include "attention/row_slab.h"

#include <algorithm>

#include "kernels/wide_kernels.h"
#include "kvarto/codec.h"

namespace kvarto {
namespace {

bool is_in_rows(const StreamView& stream) {
  return stream.layout.order == RowOrder::kRowHead || stream.layout.order == RowOrder::kHeadRow;
}

std::uint32_t round_up_elements(std::uint32_t count) {
  return (count + kWideElements - 1) / kWideElements * kWideElements;
}

// Elements between rows of the slab. One vector more than the elements take: rows whose distance is
// a multiple of 4 KiB would all lie in the same few sets of the first-level cache.
std::uint32_t row_stride_of(const PassShape& shape) {
  return round_up_elements(shape.qk_dim) + kPadFloats;
}

std::size_t tile_floats(const PassShape& shape) {
  return std::size_t{kChunkRows} * shape.qk_dim * shape.kernels->wide->element_bytes /
         sizeof(float);
}

// Where the kernels find one chunk.
struct Prepared {
  const std::byte* values = nullptr;
  const std::uint64_t* value_offsets = nullptr;
};

// Rows in codecs that are no Element, or of two fields: decoded first, keys and values from there.
Prepared decode_chunk(const PassShape& shape, const PassArgs& args, float* tiles, float* rows) {
  const RowSlab& slab = shape.slab;
  const std::uint32_t stride = row_stride_of(shape);
  for (std::uint32_t row = args.chunk->first_row; row < args.chunk->end_row; ++row) {
    const std::byte* from = args.k + args.chunk->k[row];
    float* to = rows + std::size_t{row} * stride;
    slab.decode(from, to, slab.width);
    if (slab.tail_width != 0) {
      slab.decode_tail(from + slab.tail_offset_bytes, to + slab.width, slab.tail_width);
    }
  }
  RowChunk& places = *args.slab_chunk;
  for (std::uint32_t row = 0; row < kChunkRows; ++row) {
    places.v[row] = std::uint64_t{row} * stride * sizeof(float);
  }
  const auto* decoded = reinterpret_cast<const std::byte*>(rows);
  shape.kernels->wide->fill_key_rows[static_cast<std::size_t>(Element::kF32)](
      {decoded, places.v.data(), args.chunk->end_row, shape.qk_dim,
       reinterpret_cast<std::byte*>(tiles)});
  return {decoded, places.v.data()};
}

// So few queries convert 16-bit values on their way through the kernel faster than a copy of them
// is written. Measured with 16 queries: 0.58 of the multiply-add loop instead of 0.51.
constexpr std::uint32_t kMaxConvertingQueries = 32;

Prepared convert_chunk(const PassShape& shape, std::uint32_t num_padded, const PassArgs& args,
                       float* tiles, float* rows) {
  const WideKernels& wide = *shape.kernels->wide;
  const RowSlab& slab = shape.slab;
  const auto element = static_cast<std::size_t>(slab.element);
  const RowChunk& chunk = *args.chunk;
  wide.fill_key_rows[element](
      {args.k, chunk.k.data(), chunk.end_row, shape.qk_dim, reinterpret_cast<std::byte*>(tiles)});
  if (slab.has_values_in_place || num_padded <= kMaxConvertingQueries) {
    return {args.v, chunk.v.data()};
  }
  auto* copy = reinterpret_cast<std::byte*>(rows);
  const std::uint32_t stride = row_stride_of(shape) / kWideElements * kWideElements;
  wide.fill_values[element](
      {args.v, chunk.v.data(), chunk.first_row, chunk.end_row, shape.v_dim, stride, copy});
  for (std::uint32_t row = 0; row < kChunkRows; ++row) {
    args.slab_chunk->v[row] = std::uint64_t{row} * stride * wide.element_bytes;
  }
  return {copy, args.slab_chunk->v.data()};
}

// All fields of the rows of the next chunk.
WidePrefetch prefetch_of(const PassShape& shape, const PassArgs& args) {
  if (args.next_chunk == nullptr) return {};
  const RowSlab& slab = shape.slab;
  return {args.next_k, args.next_chunk->k.data(), args.next_chunk->end_row,
          static_cast<std::uint32_t>(slab.tail_width == 0
                                         ? slab.row_bytes
                                         : static_cast<std::uint64_t>(slab.tail_offset_bytes) +
                                               slab.tail_bytes)};
}

// Values as they lie in the cache, 64 elements of all rows at a time for all queries.
void accumulate_stored(const PassShape& shape, std::uint32_t num_padded, const PassArgs& args,
                       const HeadState& state) {
  const AccumulateFunction accumulate =
      shape.kernels->accumulate[static_cast<std::size_t>(shape.slab.element)][kNumQueryTiles - 1];
  const std::uint32_t element_bytes = shape.slab.element == Element::kF32 ? 4 : 2;
  AccumulateArgs part;
  part.offsets = args.chunk->v.data();
  part.first_row = args.chunk->first_row;
  part.end_row = args.chunk->end_row;
  part.acc_stride = shape.acc_stride;
  for (std::uint32_t d = 0; d < shape.v_dim; d += shape.part_elements) {
    part.v = args.v + d * element_bytes;
    part.dim = std::min(shape.part_elements, shape.v_dim - d);
    for (std::uint32_t query = 0; query < num_padded; query += kMaxQueryTile) {
      part.p = args.scores + std::size_t{query} * kChunkRows;
      part.correction = state.correction + query;
      part.share = state.share + query;
      part.acc = state.acc + std::size_t{query} * shape.acc_stride + d;
      accumulate(part);
    }
  }
}

}  // namespace

bool has_shared_rows(const CacheView& view) {
  const StreamView& k = view.k;
  const StreamView& v = view.v;
  return is_in_rows(k) && k.base == v.base && k.codec == v.codec && k.heads == v.heads &&
         v.width <= k.width && k.block_stride_bytes == v.block_stride_bytes &&
         k.layout.order == v.layout.order &&
         k.layout.row_stride_bytes == v.layout.row_stride_bytes &&
         k.layout.head_stride_bytes == v.layout.head_stride_bytes &&
         (view.v_tail.width == 0 || v.width == k.width);
}

void choose_slab(const CacheView& view, std::uint32_t num_group_heads, PassShape& shape) {
  const bool is_needed = view.k_tail.width != 0 || view.v_tail.width != 0;
  if (!has_shared_rows(view) || (num_group_heads < kMinSlabQueries && !is_needed)) return;
  RowSlab& slab = shape.slab;
  slab.is_used = true;
  slab.is_direct = shape.k_fill == nullptr && !is_needed;
  slab.element = shape.k_element;
  const bool is_stored_as_computed = slab.is_direct && shape.kernels->wide->element_bytes ==
                                                           (slab.element == Element::kF32 ? 4 : 2);
  slab.has_values_in_place = is_stored_as_computed && shape.v_dim % kWideElements == 0;
  slab.decode = shape.kernels->decode[static_cast<std::size_t>(view.k.codec)];
  slab.width = view.k.width;
  slab.row_bytes = codec_bytes(view.k.codec, view.k.width).total();
  if (view.k_tail.width != 0) {
    slab.decode_tail = shape.kernels->decode[static_cast<std::size_t>(view.k_tail.codec)];
    slab.tail_width = view.k_tail.width;
    slab.tail_bytes = codec_bytes(view.k_tail.codec, view.k_tail.width).total();
    slab.tail_offset_bytes = view.k_tail.base - view.k.base;
  }
  shape.acc_stride = round_up_elements(shape.v_dim);
  shape.k_fill = nullptr;
  shape.v_fill = nullptr;
}

std::size_t row_slab_floats(const PassShape& shape) {
  if (!shape.slab.is_used) return 0;
  return tile_floats(shape) + std::size_t{kChunkRows} * row_stride_of(shape);
}

void pack_row_queries(const PassShape& shape, std::span<const float* const> rows, float* out) {
  shape.kernels->wide->pack_queries(
      {rows.data(), static_cast<std::uint32_t>(rows.size()), shape.qk_dim, shape.query_scale, out});
}

void run_row_pass(const PassShape& shape, std::uint32_t num_padded, const PassArgs& args,
                  const HeadState& state) {
  const WideKernels& wide = *shape.kernels->wide;
  float* rows = args.slab + tile_floats(shape);
  const Prepared prepared = shape.slab.is_direct
                                ? convert_chunk(shape, num_padded, args, args.slab, rows)
                                : decode_chunk(shape, args, args.slab, rows);
  WideScoreArgs score;
  score.keys = reinterpret_cast<const std::byte*>(args.slab);
  score.q = args.q;
  score.scores = args.scores;
  score.num_blocks = num_padded / kWideQueries;
  score.num_tiles = (args.chunk->end_row + wide.tile_rows - 1) / wide.tile_rows;
  score.dim = shape.qk_dim;
  score.next = prefetch_of(shape, args);
  wide.score(score);
  shape.kernels->wide->softmax(softmax_of_pass(shape, num_padded, args, state));
  if (shape.slab.is_direct && !shape.slab.has_values_in_place &&
      num_padded <= kMaxConvertingQueries) {
    return accumulate_stored(shape, num_padded, args, state);
  }
  WideAccumulateArgs accumulate;
  accumulate.v = prepared.values;
  accumulate.offsets = prepared.value_offsets;
  accumulate.p = args.scores;
  accumulate.correction = state.correction;
  accumulate.share = state.share;
  accumulate.acc = state.acc;
  accumulate.num_blocks = score.num_blocks;
  accumulate.first_row = args.chunk->first_row;
  accumulate.end_row = args.chunk->end_row;
  accumulate.dim = shape.v_dim;
  accumulate.acc_stride = shape.acc_stride;
  wide.accumulate(accumulate);
}

}  // namespace kvarto
