#include "attention/wide_pass.h"

#include <algorithm>

#include "attention/code_pass.h"

namespace kvarto {
namespace {

std::uint32_t round_up(std::uint32_t count, std::uint32_t unit) {
  return (count + unit - 1) / unit * unit;
}

// Whether kernels read rows of a stream as they are, without a decoder before.
bool is_plain(DecodeFunction fill, const CodeStream& codes) {
  return fill == nullptr && !codes.is_tiled;
}

}  // namespace

WideShape::WideShape(const PassShape& pass_shape)
    : pass(pass_shape), kernels(pass_shape.kernels->wide) {
  value_stride = round_up(pass.v_dim, kWideElements);
  pass.acc_stride = value_stride;
  const Element compute = kernels->element_bytes == sizeof(float) ? Element::kF32 : Element::kF16;
  reads_values_in_place = is_plain(pass.v_fill, pass.v_codes) && pass.v_element == compute &&
                          pass.v_dim % kWideElements == 0;
}

namespace {

std::size_t key_floats(const WideShape& shape) {
  return std::size_t{kChunkRows} * shape.pass.qk_dim;
}
std::size_t value_floats(const WideShape& shape) {
  return std::size_t{kChunkRows} * shape.value_stride;
}
// Rows that a decoder leaves for the transposition into one tile.
std::size_t decoded_floats(const WideShape& shape) {
  return std::size_t{shape.kernels->tile_rows} * shape.pass.q_stride;
}

}  // namespace

void reserve_wide(const WideShape& shape, std::uint32_t num_padded, ThreadScratch& scratch) {
  scratch.states.reserve(head_state_floats(shape.pass, num_padded));
  scratch.queries.reserve(std::size_t{num_padded} * shape.pass.qk_dim);
  scratch.scores.reserve(std::size_t{num_padded} * kChunkRows);
  scratch.codes.reserve(code_scratch_floats(shape.pass, num_padded));
  scratch.keys.reserve(key_floats(shape));
  scratch.values.reserve(value_floats(shape));
  scratch.key_rows.reserve(decoded_floats(shape));
}

namespace {

// Decodes the rows of one tile at a time and transposes them.
void fill_decoded_keys(const WideShape& shape, const StoredRows& rows, std::byte* tiles,
                       float* decoded) {
  const RowChunk& chunk = *rows.chunk;
  const std::uint32_t tile_rows = shape.kernels->tile_rows;
  const std::uint32_t stride = shape.pass.q_stride;
  std::uint64_t offsets[kChunkRows];
  WideKeysArgs args;
  args.from = reinterpret_cast<const std::byte*>(decoded);
  args.offsets = offsets;
  args.dim = shape.pass.qk_dim;
  for (std::uint32_t first = 0; first < chunk.num_keys; first += tile_rows) {
    args.count = std::min(tile_rows, chunk.num_keys - first);
    for (std::uint32_t i = 0; i < args.count; ++i) {
      offsets[i] = std::uint64_t{i} * stride * sizeof(float);
      shape.pass.k_fill(rows.k + chunk.k[first + i], decoded + std::size_t{i} * stride, args.dim);
    }
    args.to = tiles + std::size_t{first} * args.dim * shape.kernels->element_bytes;
    shape.kernels->fill_key_rows[static_cast<std::size_t>(Element::kF32)](args);
  }
}

void fill_keys(const WideShape& shape, const StoredRows& rows, ThreadScratch& scratch) {
  const PassShape& pass = shape.pass;
  float* tiles = scratch.keys.reserve(key_floats(shape));
  if (pass.k_codes.is_tiled) {  // f32 alone: tiles of 16 rows
    fill_code_keys({pass, *rows.chunk, rows.k, rows.k_scales, scratch.codes.reserve(0), tiles});
    return;
  }
  auto* to = reinterpret_cast<std::byte*>(tiles);
  if (pass.k_fill != nullptr) {
    return fill_decoded_keys(shape, rows, to, scratch.key_rows.reserve(decoded_floats(shape)));
  }
  WideKeysArgs args;
  args.from = rows.k;
  args.offsets = rows.chunk->k.data();
  args.count = rows.chunk->num_keys;
  args.dim = pass.qk_dim;
  args.to = to;
  const auto element = static_cast<std::size_t>(pass.k_element);
  pass.is_tiled ? shape.kernels->fill_key_tiles[element](args)
                : shape.kernels->fill_key_rows[element](args);
}

// Values that no kernel reads, through f32.
void fill_decoded_values(const WideShape& shape, const StoredRows& rows, float* values,
                         ThreadScratch& scratch) {
  const PassShape& pass = shape.pass;
  const RowChunk& chunk = *rows.chunk;
  if (pass.v_codes.is_tiled) {
    fill_code_values(
        {pass, chunk, rows.v, rows.v_scales, scratch.codes.reserve(0), values, shape.value_stride});
  }
  for (std::uint32_t row = chunk.first_row; row < chunk.end_row; ++row) {
    float* to = values + std::size_t{row} * shape.value_stride;
    if (!pass.v_codes.is_tiled) pass.v_fill(rows.v + chunk.v[row], to, pass.v_dim);
    std::fill(to + pass.v_dim, to + shape.value_stride, 0.0f);
  }
}

void fill_values(const WideShape& shape, const StoredRows& rows, WideRows& filled,
                 ThreadScratch& scratch) {
  const PassShape& pass = shape.pass;
  const RowChunk& chunk = *rows.chunk;
  if (shape.reads_values_in_place) {
    filled.v = rows.v;
    filled.v_offsets = chunk.v.data();
    return;
  }
  float* values = scratch.values.reserve(value_floats(shape));
  filled.v = reinterpret_cast<const std::byte*>(values);
  filled.v_offsets = scratch.slab_chunk.v.data();
  for (std::uint32_t row = chunk.first_row; row < chunk.end_row; ++row) {
    scratch.slab_chunk.v[row] =
        std::uint64_t{row} * shape.value_stride * shape.kernels->element_bytes;
  }
  if (!is_plain(pass.v_fill, pass.v_codes)) {
    return fill_decoded_values(shape, rows, values, scratch);
  }
  WideValuesArgs args;
  args.from = rows.v;
  args.offsets = chunk.v.data();
  args.first_row = chunk.first_row;
  args.end_row = chunk.end_row;
  args.dim = pass.v_dim;
  args.stride = shape.value_stride;
  args.to = reinterpret_cast<std::byte*>(values);
  shape.kernels->fill_values[static_cast<std::size_t>(pass.v_element)](args);
}

}  // namespace

WideRows fill_wide(const WideShape& shape, const StoredRows& rows, ThreadScratch& scratch) {
  WideRows filled;
  filled.chunk = rows.chunk;
  fill_keys(shape, rows, scratch);
  filled.keys = reinterpret_cast<const std::byte*>(scratch.keys.reserve(0));
  fill_values(shape, rows, filled, scratch);
  return filled;
}

namespace {

// Blocks of queries that see rows of the same tiles.
struct BlockRun {
  std::uint32_t first_block = 0;
  std::uint32_t end_block = 0;
  std::uint32_t first_row = 0;
  std::uint32_t end_row = 0;  // nothing is seen if not beyond first_row
};

// The rows that a block sees, widened to whole tiles within the chunk.
BlockRun rows_of_block(const WideShape& shape, const WidePassArgs& args, std::uint32_t block) {
  const RowChunk& chunk = *args.rows.chunk;
  BlockRun run{block, block + 1, chunk.first_row, chunk.end_row};
  if (args.query_end == nullptr) return run;
  run.first_row = chunk.end_row;
  run.end_row = 0;
  for (std::uint32_t i = block * kWideQueries; i < (block + 1) * kWideQueries; ++i) {
    if (args.query_first[i] >= args.query_end[i]) continue;
    run.first_row = std::min(run.first_row, args.query_first[i]);
    run.end_row = std::max(run.end_row, args.query_end[i]);
  }
  const std::uint32_t tile_rows = shape.kernels->tile_rows;
  run.first_row = std::max(chunk.first_row, run.first_row / tile_rows * tile_rows);
  run.end_row = std::min(chunk.end_row, round_up(run.end_row, tile_rows));
  return run;
}

BlockRun next_run(const WideShape& shape, const WidePassArgs& args, std::uint32_t block) {
  BlockRun run = rows_of_block(shape, args, block);
  while (run.end_block < args.num_padded / kWideQueries) {
    const BlockRun other = rows_of_block(shape, args, run.end_block);
    if (other.first_row != run.first_row || other.end_row != run.end_row) break;
    ++run.end_block;
  }
  return run;
}

void score(const WideShape& shape, const WidePassArgs& args, const BlockRun& run) {
  const std::uint32_t tile_rows = shape.kernels->tile_rows;
  const std::uint32_t first_tile = run.first_row / tile_rows;
  const std::size_t query = std::size_t{run.first_block} * kWideQueries;
  WideScoreArgs score;
  score.dim = shape.pass.qk_dim;
  score.keys = args.rows.keys +
               std::size_t{first_tile} * tile_rows * score.dim * shape.kernels->element_bytes;
  score.q = args.q + query * score.dim;
  score.scores = args.scores + query * kChunkRows + std::size_t{first_tile} * tile_rows;
  score.num_blocks = run.end_block - run.first_block;
  score.num_tiles = round_up(run.end_row, tile_rows) / tile_rows - first_tile;
  if (run.first_block == 0) score.next = args.soon[0];
  shape.kernels->score(score);
}

void soften(const WideShape& shape, const WidePassArgs& args, const BlockRun& run,
            const HeadState& state) {
  const std::size_t query = std::size_t{run.first_block} * kWideQueries;
  SoftmaxArgs softmax;
  softmax.scores = args.scores + query * kChunkRows;
  softmax.num_queries = (run.end_block - run.first_block) * kWideQueries;
  softmax.first_row = run.first_row;
  softmax.end_row = run.end_row;
  if (args.query_end != nullptr) {
    softmax.query_first = args.query_first + query;
    softmax.query_end = args.query_end + query;
  }
  softmax.soft_cap = shape.pass.soft_cap;
  softmax.slopes = args.slopes == nullptr ? nullptr : args.slopes + query;
  softmax.distances = args.distances + query;
  softmax.maximum = state.maximum + query;
  softmax.correction = state.correction + query;
  softmax.sum = state.sum + query * kPadFloats;
  softmax.share = state.share + query;
  shape.kernels->softmax(softmax);
}

void accumulate(const WideShape& shape, const WidePassArgs& args, const BlockRun& run,
                const HeadState& state) {
  const std::size_t query = std::size_t{run.first_block} * kWideQueries;
  WideAccumulateArgs accumulate;
  accumulate.v = args.rows.v;
  accumulate.offsets = args.rows.v_offsets;
  accumulate.p = args.scores + query * kChunkRows;
  accumulate.correction = state.correction + query;
  accumulate.share = state.share + query;
  accumulate.acc = state.acc + query * shape.pass.acc_stride;
  accumulate.num_blocks = run.end_block - run.first_block;
  accumulate.first_row = run.first_row;
  accumulate.end_row = run.end_row;
  accumulate.dim = shape.pass.v_dim;
  accumulate.acc_stride = shape.pass.acc_stride;
  if (run.first_block == 0) accumulate.next = args.soon[1];
  shape.kernels->accumulate(accumulate);
}

}  // namespace

void run_wide_pass(const WideShape& shape, const WidePassArgs& args, const HeadState& state) {
  const std::uint32_t num_blocks = args.num_padded / kWideQueries;
  for (std::uint32_t block = 0; block < num_blocks;) {
    const BlockRun run = next_run(shape, args, block);
    block = run.end_block;
    if (run.first_row >= run.end_row) continue;
    score(shape, args, run);
    soften(shape, args, run, state);
    accumulate(shape, args, run, state);
  }
}

}  // namespace kvarto
