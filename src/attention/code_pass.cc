#include "attention/code_pass.h"

#include <algorithm>

namespace kvarto {
namespace {

constexpr std::uint32_t kTilesPerChunk = kChunkRows / kKeyTileRows;
// With several query tiles, so many elements of values are brought to the first-level cache and
// used by all of them: 8 KiB of 8-bit codes.
constexpr std::uint32_t kPartElements = 128;
constexpr std::uint32_t kLineBytes = 64;
// Bytes of a probability times the scale of its row. One byte would leave only 1/127 of the largest
// product of a chunk: rows of small weight, however many, would be lost.
constexpr std::uint32_t kWeightParts = 2;

// Index of a code's width in the kernel tables.
std::size_t width_index(const CodeStream& stream) { return stream.format.bits == 8 ? 0 : 1; }

std::size_t round_up_words(std::size_t count) {
  return (count + kPadFloats - 1) / kPadFloats * kPadFloats;
}

// The parts of PassArgs::code_scratch.
struct Scratch {
  float* row_scales = nullptr;  // [num_groups][kChunkRows], of keys and then of values
  float* weight_scales = nullptr;
  std::int32_t* weight_zeros = nullptr;
  std::int8_t* weights = nullptr;
};

std::size_t row_scale_floats(const PassShape& shape) {
  const std::uint32_t k_groups = shape.k_codes.is_tiled ? shape.k_codes.format.num_groups : 0;
  const std::uint32_t v_groups = shape.v_codes.is_tiled ? shape.v_codes.format.num_groups : 0;
  return std::size_t{std::max(k_groups, v_groups)} * kChunkRows;
}

std::size_t num_pairs(const PassShape& shape, std::uint32_t num_padded) {
  return std::size_t{num_padded} * shape.v_codes.format.num_groups;
}

Scratch scratch_at(const PassShape& shape, std::uint32_t num_padded, float* buffer) {
  const std::size_t pairs = round_up_words(num_pairs(shape, num_padded));
  Scratch scratch;
  scratch.row_scales = buffer;
  scratch.weight_scales = buffer + row_scale_floats(shape);
  scratch.weight_zeros = reinterpret_cast<std::int32_t*>(scratch.weight_scales + pairs);
  scratch.weights = reinterpret_cast<std::int8_t*>(scratch.weight_scales + 2 * pairs);
  return scratch;
}

// The tail of `args`, in place: copies of what was just written are slow to read.
void load_scales(const PassShape& shape, const CodeStream& stream, LoadScalesArgs& args,
                 float* out) {
  args.num_groups = stream.format.num_groups;
  args.is_f16 = stream.format.is_f16();
  args.out = out;
  shape.kernels->codes.load_scales(args);
}

std::uint32_t num_tiles(const RowChunk& chunk) {
  return (chunk.end_row + kKeyTileRows - 1) / kKeyTileRows;
}

// Softmax and weights of all queries.
WeighArgs weigh_places(const PassShape& shape, std::uint32_t num_padded, float* buffer) {
  const Scratch scratch = scratch_at(shape, num_padded, buffer);
  WeighArgs args;
  args.row_scales = scratch.row_scales;
  args.num_groups = shape.v_codes.format.num_groups;
  args.zero_point = shape.v_codes.format.zero_point;
  args.codes = scratch.weights;
  args.scales = scratch.weight_scales;
  args.zeros = scratch.weight_zeros;
  return args;
}

}  // namespace

CodeStream code_stream_of(const StreamView& stream, std::uint32_t rows_per_block) {
  CodeStream codes;
  if (stream.layout.order != RowOrder::kHeadTiles &&
      stream.layout.order != RowOrder::kHeadValueTiles) {
    return codes;
  }
  const auto format = code_format(stream.codec, stream.width);
  if (!format.has_value()) return codes;
  codes.is_tiled = true;
  codes.format = *format;
  codes.scales_begin = stream.heads * stream.layout.head_stride_bytes;
  codes.head_scale_bytes = format->scales_bytes(rows_per_block);
  codes.tile_scale_bytes = format->scales_bytes(kTileRows);
  return codes;
}

const std::byte* scales_of(const StreamView& stream, const CodeStream& codes, std::uint32_t head) {
  if (!codes.is_tiled) return nullptr;
  return stream.base + codes.scales_begin + head * codes.head_scale_bytes;
}

std::size_t code_scratch_floats(const PassShape& shape, std::uint32_t num_padded) {
  if (!shape.k_codes.is_tiled && !shape.v_codes.is_tiled) return 0;
  const std::size_t pairs = round_up_words(num_pairs(shape, num_padded));
  return row_scale_floats(shape) + 2 * pairs + pairs * kWeightParts * kChunkRows / sizeof(float);
}

void pack_query_codes(const PassShape& shape, const QueryTile& tile,
                      std::span<const float* const> rows, float* out) {
  PackQueryCodesArgs args;
  args.rows = rows.data() + tile.first;
  args.num_queries = std::min(tile.size, static_cast<std::uint32_t>(rows.size()) - tile.first);
  args.tile = tile.size;
  args.dim = shape.qk_dim;
  args.group_elements = shape.k_codes.format.group_elements;
  args.parts = shape.query_parts;
  args.zero_point = shape.k_codes.format.zero_point;
  args.scale = shape.query_scale;
  args.out = reinterpret_cast<std::int32_t*>(out);
  shape.kernels->codes.pack_queries(args);
}

void score_code_tiles(const PassShape& shape, std::span<const QueryTile> tiles,
                      const PassArgs& args) {
  LoadScalesArgs scales;
  scales.from = args.k_scales;
  scales.offsets = args.chunk->k_scales.data();
  scales.count = args.chunk->num_keys;
  CodeScoreArgs score;
  score.k = args.k;
  score.offsets = args.chunk->k.data();
  if (args.next_chunk != nullptr) {
    scales.next = args.next_k_scales;
    scales.next_offsets = args.next_chunk->k_scales.data();
    score.next_k = args.next_k;
    score.next_offsets = args.next_chunk->k.data();
  }
  load_scales(shape, shape.k_codes, scales, args.code_scratch);
  score.row_scales = args.code_scratch;
  score.count = args.chunk->num_keys;
  score.dim = shape.qk_dim;
  score.group_elements = shape.k_codes.format.group_elements;
  const auto& kernels =
      shape.kernels->codes.score[width_index(shape.k_codes)][shape.query_parts - 1];
  for (const QueryTile& tile : tiles) {
    score.q =
        reinterpret_cast<const std::int32_t*>(args.q) + std::size_t{tile.first} * shape.q_stride;
    score.scores = args.scores + std::size_t{tile.first} * kChunkRows;
    kernels[tile.kernel](score);
    score.next_k = nullptr;  // once is enough
  }
}

void accumulate_code_tiles(const PassShape& shape, std::span<const QueryTile> tiles,
                           const PassArgs& args, const SoftmaxArgs& softmax,
                           const HeadState& state) {
  LoadScalesArgs scales;
  scales.from = args.v_scales;
  scales.offsets = args.chunk->v_scales.data();
  scales.count = num_tiles(*args.chunk);
  CodeAccumulateArgs accumulate;
  WeighArgs weigh = weigh_places(shape, softmax.num_queries, args.code_scratch);
  if (args.next_chunk != nullptr) {
    scales.next = args.next_v_scales;
    scales.next_offsets = args.next_chunk->v_scales.data();
    accumulate.next_offsets = args.next_chunk->v.data();
    if (shape.v_codes.format.bits == 8 && tiles.front().size == kMaxQueryTile) {
      const std::uint32_t tile_bytes = kKeyTileRows * shape.v_dim;
      weigh.next_v = args.next_v;
      weigh.next_offsets = accumulate.next_offsets;
      weigh.next_lines = tile_bytes / (4 * kLineBytes);
      weigh.next_first_byte = tile_bytes - weigh.next_lines * kLineBytes;
    }
  }
  load_scales(shape, shape.v_codes, scales, args.code_scratch);
  weigh.softmax = &softmax;
  shape.kernels->codes.weigh(weigh);

  accumulate.v = args.v;
  accumulate.offsets = args.chunk->v.data();
  accumulate.count = scales.count;
  accumulate.group_elements = shape.v_codes.format.group_elements;
  accumulate.num_queries = softmax.num_queries;
  accumulate.acc_stride = shape.acc_stride;
  const std::uint32_t part = tiles.size() == 1 ? shape.v_dim : kPartElements;
  const auto& kernels = shape.kernels->codes.accumulate[width_index(shape.v_codes)];
  for (std::uint32_t d = 0; d < shape.v_dim; d += part) {
    accumulate.first_element = d;
    accumulate.dim = std::min(part, shape.v_dim - d);
    if (args.next_chunk != nullptr) accumulate.next_v = args.next_v;
    for (const QueryTile& tile : tiles) {
      accumulate.codes = weigh.codes + std::size_t{tile.first} * kWeightParts * kChunkRows;
      accumulate.scales = weigh.scales + tile.first;
      accumulate.zeros = weigh.zeros + tile.first;
      accumulate.correction = state.correction + tile.first;
      accumulate.acc = state.acc + std::size_t{tile.first} * shape.acc_stride;
      kernels[tile.kernel](accumulate);
      accumulate.next_v = nullptr;
    }
  }
}

void fill_code_keys(const CodeFill& fill) {
  const CodeStream& stream = fill.shape.k_codes;
  LoadScalesArgs scales;
  scales.from = fill.scales;
  scales.offsets = fill.chunk.k_scales.data();
  scales.count = fill.chunk.num_keys;
  load_scales(fill.shape, stream, scales, fill.scratch);
  FillCodesArgs args;
  args.dim = fill.shape.qk_dim;
  args.group_elements = stream.format.group_elements;
  args.zero_point = stream.format.zero_point;
  for (std::uint32_t tile = 0; tile < scales.count; ++tile) {
    args.codes = fill.codes + fill.chunk.k[tile];
    args.row_scales = fill.scratch + std::size_t{tile} * kKeyTileRows;
    args.out = fill.out + std::size_t{tile} * kKeyTileRows * args.dim;
    fill.shape.kernels->codes.fill_keys[width_index(stream)](args);
  }
}

void fill_code_values(const CodeFill& fill) {
  const CodeStream& stream = fill.shape.v_codes;
  LoadScalesArgs scales;
  scales.from = fill.scales;
  scales.offsets = fill.chunk.v_scales.data();
  scales.count = num_tiles(fill.chunk);
  load_scales(fill.shape, stream, scales, fill.scratch);
  FillCodesArgs args;
  args.dim = fill.shape.v_dim;
  args.group_elements = stream.format.group_elements;
  args.zero_point = stream.format.zero_point;
  args.stride = fill.stride;
  for (std::uint32_t tile = 0; tile < scales.count; ++tile) {
    args.codes = fill.codes + fill.chunk.v[tile];
    args.row_scales = fill.scratch + std::size_t{tile} * kKeyTileRows;
    args.out = fill.out + std::size_t{tile} * kKeyTileRows * fill.stride;
    fill.shape.kernels->codes.fill_values[width_index(stream)](args);
  }
}

static_assert(kTilesPerChunk == 4, "the order of a chunk's operands (WeighArgs)");

}  // namespace kvarto
