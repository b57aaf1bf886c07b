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

// Elements between rows of the slab. One unit more than the elements take: rows whose distance is
// a multiple of 4 KiB would all lie in the same few sets of the first-level cache.
std::uint32_t row_stride_of(const PassShape& shape) {
  return round_up_elements(shape.qk_dim) + kWideElements;
}

// Where the kernels find the rows of one chunk, as keys and as values.
struct Prepared {
  const std::byte* rows = nullptr;
  const std::uint64_t* offsets = nullptr;
};

// A copy of all rows in the slab.
Prepared copy_at(const PassShape& shape, const PassArgs& args) {
  const std::uint64_t row_bytes =
      std::uint64_t{row_stride_of(shape)} * shape.kernels->wide->element_bytes;
  RowChunk& places = *args.slab_chunk;
  for (std::uint32_t row = 0; row < kChunkRows; ++row) places.v[row] = row * row_bytes;
  return {reinterpret_cast<const std::byte*>(args.slab), places.v.data()};
}

// Rows in codecs that are no Element, or of two fields.
Prepared decode_chunk(const PassShape& shape, const PassArgs& args) {
  const RowSlab& slab = shape.slab;
  const std::uint32_t stride = row_stride_of(shape);
  for (std::uint32_t row = args.chunk->first_row; row < args.chunk->end_row; ++row) {
    const std::byte* from = args.k + args.chunk->k[row];
    float* to = args.slab + std::size_t{row} * stride;
    slab.decode(from, to, slab.width);
    if (slab.tail_width != 0) {
      slab.decode_tail(from + slab.tail_offset_bytes, to + slab.width, slab.tail_width);
    }
  }
  return copy_at(shape, args);
}

Prepared convert_chunk(const PassShape& shape, const PassArgs& args) {
  const RowChunk& chunk = *args.chunk;
  if (shape.slab.is_read_in_place) return {args.k, chunk.k.data()};
  const auto element = static_cast<std::size_t>(shape.slab.element);
  shape.kernels->wide->fill_values[element]({args.k, chunk.k.data(), chunk.first_row, chunk.end_row,
                                             shape.qk_dim, row_stride_of(shape),
                                             reinterpret_cast<std::byte*>(args.slab)});
  return copy_at(shape, args);
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
  slab.is_read_in_place = is_stored_as_computed && shape.v_dim % kWideElements == 0;
  slab.decode = shape.kernels->decode[static_cast<std::size_t>(view.k.codec)];
  slab.width = view.k.width;
  slab.row_bytes = codec_bytes(view.k.codec, view.k.width).total();
  if (view.k_tail.width != 0) {
    slab.decode_tail = shape.kernels->decode[static_cast<std::size_t>(view.k_tail.codec)];
    slab.tail_width = view.k_tail.width;
    slab.tail_bytes = codec_bytes(view.k_tail.codec, view.k_tail.width).total();
    slab.tail_offset_bytes = view.k_tail.base - view.k.base;
  }
  shape.q_stride = round_up_elements(shape.qk_dim);
  shape.acc_stride = round_up_elements(shape.v_dim);
  shape.k_fill = nullptr;
  shape.v_fill = nullptr;
}

std::size_t row_slab_floats(const PassShape& shape) {
  if (!shape.slab.is_used) return 0;
  return std::size_t{kChunkRows} * row_stride_of(shape);
}

void pack_row_queries(const PassShape& shape, std::span<const float* const> rows, float* out) {
  shape.kernels->wide->pack_row_queries({rows.data(), static_cast<std::uint32_t>(rows.size()),
                                         shape.qk_dim, shape.q_stride, shape.query_scale, out});
}

void run_row_pass(const PassShape& shape, std::uint32_t num_padded, const PassArgs& args,
                  const HeadState& state) {
  const WideKernels& wide = *shape.kernels->wide;
  const RowChunk& chunk = *args.chunk;
  const Prepared prepared =
      shape.slab.is_direct ? convert_chunk(shape, args) : decode_chunk(shape, args);
  WideRowScoreArgs score;
  score.rows = prepared.rows;
  score.offsets = prepared.offsets;
  score.first_row = chunk.first_row;
  score.end_row = chunk.end_row;
  score.q = args.q;
  score.q_stride = shape.q_stride;
  score.dim = shape.qk_dim;
  score.scores = args.scores;
  score.num_blocks = num_padded / kWideQueries;
  score.next = prefetch_of(shape, args);
  wide.score_rows(score);
  wide.softmax(softmax_of_pass(shape, num_padded, args, state));
  WideAccumulateArgs accumulate;
  accumulate.v = prepared.rows;
  accumulate.offsets = prepared.offsets;
  accumulate.p = args.scores;
  accumulate.correction = state.correction;
  accumulate.share = state.share;
  accumulate.acc = state.acc;
  accumulate.num_blocks = score.num_blocks;
  accumulate.first_row = chunk.first_row;
  accumulate.end_row = chunk.end_row;
  accumulate.dim = shape.v_dim;
  accumulate.acc_stride = shape.acc_stride;
  wide.accumulate(accumulate);
}

}  // namespace kvarto
