#include "attention/head_pass.h"

#include <algorithm>
#include <limits>

#include "attention/code_pass.h"
#include "attention/fill.h"
#include "attention/row_slab.h"

namespace kvarto {

std::vector<QueryTile> tile_queries(std::uint32_t num_queries) {
  std::vector<QueryTile> tiles;
  for (std::uint32_t first = 0; first < num_queries;) {
    QueryTile tile{first, 1, 0};
    while (tile.size < num_queries - first && tile.size < kMaxQueryTile) {
      tile.size *= 2;
      ++tile.kernel;
    }
    tiles.push_back(tile);
    first += tile.size;
  }
  return tiles;
}

std::vector<QueryTile> whole_query_tiles(std::uint32_t num_queries) {
  std::vector<QueryTile> tiles;
  for (std::uint32_t first = 0; first < num_queries; first += kMaxQueryTile) {
    tiles.push_back({first, kMaxQueryTile, kNumQueryTiles - 1});
  }
  return tiles;
}

namespace {

std::size_t padded_scalars(std::uint32_t num_padded) {
  return (std::size_t{num_padded} + kPadFloats - 1) / kPadFloats * kPadFloats;
}

}  // namespace

std::size_t head_state_floats(const PassShape& shape, std::uint32_t num_padded) {
  return std::size_t{num_padded} * (shape.acc_stride + kPadFloats) + 3 * padded_scalars(num_padded);
}

HeadState head_state_at(const PassShape& shape, std::uint32_t num_padded, float* buffer) {
  HeadState state{};
  state.acc = buffer;
  state.sum = state.acc + std::size_t{num_padded} * shape.acc_stride;
  state.maximum = state.sum + std::size_t{num_padded} * kPadFloats;
  state.correction = state.maximum + padded_scalars(num_padded);
  state.share = state.correction + padded_scalars(num_padded);
  return state;
}

void clear(const PassShape& shape, std::uint32_t num_padded, const HeadState& state) {
  std::fill_n(state.acc, std::size_t{num_padded} * shape.acc_stride, 0.0f);
  std::fill_n(state.sum, std::size_t{num_padded} * kPadFloats, 0.0f);
  std::fill_n(state.maximum, num_padded, -std::numeric_limits<float>::infinity());
  std::fill_n(state.correction, num_padded, 1.0f);
  std::fill_n(state.share, num_padded, 1.0f);
}

void pack_queries(const PassShape& shape, std::span<const QueryTile> tiles,
                  std::span<const float* const> rows, float* out) {
  if (shape.slab.is_used) return pack_row_queries(shape, rows, out);
  for (const QueryTile& tile : tiles) {
    if (shape.is_integer && shape.k_codes.is_tiled) {
      pack_query_codes(shape, tile, rows, out + std::size_t{tile.first} * shape.q_stride);
      continue;
    }
    PackQueriesArgs args;
    args.rows = rows.data() + tile.first;
    args.num_queries = std::min(tile.size, static_cast<std::uint32_t>(rows.size()) - tile.first);
    args.tile = tile.size;
    args.dim = shape.qk_dim;
    args.stride = shape.q_stride;
    args.scale = shape.query_scale;
    args.out = out + std::size_t{tile.first} * shape.q_stride;
    shape.is_tiled ? shape.kernels->pack_query_tile(args) : shape.kernels->pack_query_rows(args);
  }
}

namespace {

constexpr std::size_t kHalfBytes = 2;

void score_tiles(const PassShape& shape, std::span<const QueryTile> tiles, const PassArgs& args) {
  const auto element = static_cast<std::size_t>(shape.k_element);
  const auto& kernels =
      shape.is_tiled ? shape.kernels->score_tiles[element] : shape.kernels->score_rows[element];
  const std::uint32_t rows_per_key = shape.is_tiled ? kKeyTileRows : 1;
  const std::uint32_t num_keys = args.chunk->num_keys;
  const std::uint32_t part =
      tiles.size() == 1 ? num_keys : shape.part_tiles * kKeyTileRows / rows_per_key;
  ScoreArgs score;
  score.k = args.k;
  score.dim = shape.qk_dim;
  score.q_stride = shape.q_stride;
  const std::uint64_t* offsets = args.chunk->k.data();
  std::uint64_t joined_offsets[kChunkRows / kKeyTileRows];
  if (args.joined != nullptr) {
    shape.kernels->join_tiles({args.k, offsets, num_keys, shape.qk_dim, args.joined});
    const std::uint64_t pair_bytes = std::uint64_t{2} * kKeyTileRows * kHalfBytes * shape.qk_dim;
    for (std::uint32_t i = 0; i < kChunkRows / kKeyTileRows; ++i) {
      joined_offsets[i] = i / 2 * pair_bytes;
    }
    offsets = joined_offsets;
    score.k = args.joined;
    score.is_joined = true;
  }
  for (std::uint32_t key = 0; key < num_keys; key += part) {
    score.offsets = offsets + key;
    score.count = std::min(part, num_keys - key);
    if (args.next_chunk != nullptr) {
      score.next_k = args.next_k;
      score.next_offsets = args.next_chunk->k.data() + key;
    }
    for (const QueryTile& tile : tiles) {
      score.q = args.q + std::size_t{tile.first} * shape.q_stride;
      score.scores = args.scores + std::size_t{tile.first} * kChunkRows + key * rows_per_key;
      kernels[tile.kernel](score);
      score.next_k = nullptr;  // once is enough
    }
  }
}

void accumulate_tiles(const PassShape& shape, std::span<const QueryTile> tiles,
                      const PassArgs& args, const HeadState& state) {
  const auto& kernels = shape.kernels->accumulate[static_cast<std::size_t>(shape.v_element)];
  const std::uint32_t element_bytes = shape.v_element == Element::kF32 ? 4 : 2;
  const std::uint32_t part = tiles.size() == 1 ? shape.v_dim : shape.part_elements;
  AccumulateArgs accumulate;
  accumulate.offsets = args.chunk->v.data();
  accumulate.first_row = args.chunk->first_row;
  accumulate.end_row = args.chunk->end_row;
  accumulate.acc_stride = shape.acc_stride;
  for (std::uint32_t d = 0; d < shape.v_dim; d += part) {
    accumulate.v = args.v + d * element_bytes;
    accumulate.dim = std::min(part, shape.v_dim - d);
    if (args.next_chunk != nullptr) {
      accumulate.next_v = args.next_v + d * element_bytes;
      accumulate.next_offsets = args.next_chunk->v.data();
    }
    for (const QueryTile& tile : tiles) {
      accumulate.p = args.scores + std::size_t{tile.first} * kChunkRows;
      accumulate.correction = state.correction + tile.first;
      accumulate.share = state.share + tile.first;
      accumulate.acc = state.acc + std::size_t{tile.first} * shape.acc_stride + d;
      kernels[tile.kernel](accumulate);
      accumulate.next_v = nullptr;
    }
  }
}

void score_all(const PassShape& shape, std::span<const QueryTile> tiles, const PassArgs& args) {
  if (shape.k_codes.is_tiled) {
    if (shape.is_integer) return score_code_tiles(shape, tiles, args);
    return score_tiles(shape, tiles, with_filled_key_tiles(shape, args));
  }
  if (shape.k_fill == nullptr) return score_tiles(shape, tiles, args);
  for (std::uint32_t first = 0; first < args.chunk->num_keys; first += kFilledKeys) {
    score_tiles(shape, tiles, with_filled_keys(shape, args, first));
  }
}

}  // namespace

std::size_t joined_key_bytes(const PassShape& shape, std::size_t num_tiles) {
  if (shape.kernels->join_tiles == nullptr || num_tiles < 2) return 0;
  return std::size_t{kChunkRows} * shape.qk_dim * kHalfBytes;
}

SoftmaxArgs softmax_of_pass(const PassShape& shape, std::uint32_t num_padded, const PassArgs& args,
                            const HeadState& state) {
  SoftmaxArgs softmax;
  softmax.scores = args.scores;
  softmax.num_queries = num_padded;
  softmax.first_row = args.chunk->first_row;
  softmax.end_row = args.chunk->end_row;
  softmax.query_first = args.query_first;
  softmax.query_end = args.query_end;
  softmax.soft_cap = shape.soft_cap;
  softmax.slopes = args.slopes;
  softmax.distances = args.distances;
  softmax.maximum = state.maximum;
  softmax.correction = state.correction;
  softmax.sum = state.sum;
  softmax.share = state.share;
  return softmax;
}

void run_pass(const PassShape& shape, std::span<const QueryTile> tiles, const PassArgs& args,
              const HeadState& state) {
  const std::uint32_t num_padded = tiles.back().first + tiles.back().size;
  if (shape.slab.is_used) return run_row_pass(shape, num_padded, args, state);
  score_all(shape, tiles, args);
  const SoftmaxArgs softmax = softmax_of_pass(shape, num_padded, args, state);
  if (shape.is_integer && shape.v_codes.is_tiled) {
    accumulate_code_tiles(shape, tiles, args, softmax, state);
    return;
  }
  shape.kernels->softmax(softmax);
  const bool is_filled = shape.v_fill != nullptr || shape.v_codes.is_tiled;
  accumulate_tiles(shape, tiles, is_filled ? with_filled_values(shape, args) : args, state);
}

}  // namespace kvarto
