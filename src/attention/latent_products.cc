#include "attention/latent_products.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "attention/code_pass.h"

namespace kvarto {
namespace {

constexpr std::size_t kF32 = static_cast<std::size_t>(Element::kF32);

// Calls function(item, thread) for every item, as threads become free.
template <typename Function>
void for_each_item(RunnerState& state, std::size_t num_items, const Function& function) {
  std::atomic<std::size_t> next{0};
  state.pool.run([&](std::size_t thread) {
    for (std::size_t i = next.fetch_add(1, std::memory_order_relaxed); i < num_items;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      function(i, thread);
    }
  });
}

// The query tile of the tokens from `first` on.
QueryTile tile_at(std::uint64_t first, std::uint64_t num_tokens) {
  const auto left =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(kMaxQueryTile, num_tokens - first));
  return tile_queries(left).front();
}

std::uint32_t num_used(const QueryTile& tile, std::uint64_t first, std::uint64_t num_tokens) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(tile.size, num_tokens - first));
}

std::uint32_t padded(std::uint32_t floats) {
  return (floats + kPadFloats - 1) / kPadFloats * kPadFloats;
}

// Offsets of rows of `width` floats, one behind the other.
std::array<std::uint64_t, kChunkRows> row_offsets(std::uint32_t width) {
  std::array<std::uint64_t, kChunkRows> offsets{};
  for (std::uint64_t i = 0; i < kChunkRows; ++i) offsets[i] = i * width * sizeof(float);
  return offsets;
}

}  // namespace

void fold_queries(RunnerState& state, const LatentDims& dims, const HeadProducts& products) {
  const float* w_uk = products.weights;
  const std::uint64_t num_tokens = products.num_tokens;
  const float* q = products.from;
  float* folded = products.to;
  const std::uint32_t stride = padded(dims.latent);
  for (ThreadScratch& scratch : state.scratch) {
    scratch.states.reserve(std::size_t{kMaxQueryTile} * stride);
    scratch.scores.reserve(std::size_t{kMaxQueryTile} * kChunkRows);
  }
  const auto offsets = row_offsets(dims.latent);
  for_each_item(state, dims.heads, [&](std::size_t head, std::size_t thread) {
    float* acc = state.scratch[thread].states.reserve(0);
    float* p = state.scratch[thread].scores.reserve(0);
    const float ones[kMaxQueryTile] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (std::uint64_t first = 0; first < num_tokens;) {
      const QueryTile tile = tile_at(first, num_tokens);
      const std::uint32_t count = num_used(tile, first, num_tokens);
      std::fill_n(acc, std::size_t{tile.size} * stride, 0.0f);
      std::fill_n(p, std::size_t{tile.size} * kChunkRows, 0.0f);
      for (std::uint32_t n = 0; n < dims.nope; n += kChunkRows) {
        AccumulateArgs args;
        args.v = reinterpret_cast<const std::byte*>(w_uk + (head * dims.nope + n) * dims.latent);
        args.offsets = offsets.data();
        args.p = p;
        args.correction = ones;
        args.share = ones;
        args.acc = acc;
        args.end_row = std::min(kChunkRows, dims.nope - n);
        args.dim = dims.latent;
        args.acc_stride = stride;
        for (std::uint32_t g = 0; g < count; ++g) {
          const float* row = q + ((first + g) * dims.heads + head) * dims.key();
          std::copy_n(row + n, args.end_row, p + std::size_t{g} * kChunkRows);
        }
        state.kernels->accumulate[kF32][tile.kernel](args);
      }
      for (std::uint32_t g = 0; g < count; ++g) {
        const std::uint64_t query = (first + g) * dims.heads + head;
        float* to = folded + query * dims.row();
        std::copy_n(acc + std::size_t{g} * stride, dims.latent, to);
        std::copy_n(q + query * dims.key() + dims.nope, dims.rope, to + dims.latent);
      }
      first += count;
    }
  });
}

void expand_outputs(RunnerState& state, const LatentDims& dims, const HeadProducts& products) {
  const float* w_uv = products.weights;
  const std::uint64_t num_tokens = products.num_tokens;
  const float* latents = products.from;
  float* out = products.to;
  const std::uint32_t stride = padded(dims.latent);
  for (ThreadScratch& scratch : state.scratch) {
    scratch.queries.reserve(std::size_t{kMaxQueryTile} * stride);
    scratch.scores.reserve(std::size_t{kMaxQueryTile} * kChunkRows);
  }
  const auto offsets = row_offsets(dims.latent);
  for_each_item(state, dims.heads, [&](std::size_t head, std::size_t thread) {
    float* packed = state.scratch[thread].queries.reserve(0);
    float* scores = state.scratch[thread].scores.reserve(0);
    for (std::uint64_t first = 0; first < num_tokens;) {
      const QueryTile tile = tile_at(first, num_tokens);
      const std::uint32_t count = num_used(tile, first, num_tokens);
      const float* rows[kMaxQueryTile] = {};
      for (std::uint32_t g = 0; g < count; ++g) {
        rows[g] = latents + ((first + g) * dims.heads + head) * dims.latent;
      }
      state.kernels->pack_query_rows({.rows = rows,
                                      .num_queries = count,
                                      .tile = tile.size,
                                      .dim = dims.latent,
                                      .stride = stride,
                                      .scale = 1,
                                      .out = packed});
      for (std::uint32_t v = 0; v < dims.v; v += kChunkRows) {
        ScoreArgs args;
        args.k = reinterpret_cast<const std::byte*>(w_uv + (head * dims.v + v) * dims.latent);
        args.offsets = offsets.data();
        args.q = packed;
        args.scores = scores;
        args.count = std::min(kChunkRows, dims.v - v);
        args.dim = dims.latent;
        args.q_stride = stride;
        state.kernels->score_rows[kF32][tile.kernel](args);
        for (std::uint32_t g = 0; g < count; ++g) {
          std::copy_n(scores + std::size_t{g} * kChunkRows, args.count,
                      out + ((first + g) * dims.heads + head) * dims.v + v);
        }
      }
      first += count;
    }
  });
}

namespace {

// Blocks that one item expands with the tiles of one head's weights, which making costs about as
// much as expanding eight rows.
constexpr std::uint64_t kItemBlocks = 8;

class Expander {
 public:
  Expander(RunnerState& state, const LatentDims& dims, const ExpandCall& call)
      : state_(state), dims_(dims), call_(call) {
    decode_ = state.kernels->decode[static_cast<std::size_t>(call.view->k.codec)];
    if (call.view->k_tail.width != 0) {
      decode_tail_ = state.kernels->decode[static_cast<std::size_t>(call.view->k_tail.codec)];
    }
  }

  void run() {
    for (ThreadScratch& scratch : state_.scratch) {
      scratch.keys.reserve(std::size_t{num_tiles()} * kKeyTileRows * dims_.latent);
      scratch.slab.reserve(std::size_t{kExpandedRows} * row_stride());
      scratch.queries.reserve(std::size_t{kMaxQueryTile} * padded(dims_.latent));
      scratch.scores.reserve(std::size_t{kMaxQueryTile} * kChunkRows);
    }
    const std::uint64_t parts = (num_blocks() + kItemBlocks - 1) / kItemBlocks;
    for_each_item(state_, parts * call_.num_heads, [&](std::size_t item, std::size_t thread) {
      const auto head = static_cast<std::uint32_t>(item / parts);
      ThreadScratch& scratch = state_.scratch[thread];
      make_tiles(head, scratch);
      const std::uint64_t first = item % parts * kItemBlocks;
      const std::uint64_t end = std::min(num_blocks(), first + kItemBlocks);
      for (std::uint64_t block = first; block < end; ++block) expand_block(head, block, scratch);
    });
  }

 private:
  [[nodiscard]] std::uint64_t num_blocks() const {
    return call_.rows.num_rows() == 0
               ? 0
               : (call_.rows.end + kExpandedRows - 1) / kExpandedRows - first_block();
  }
  [[nodiscard]] std::uint64_t first_block() const { return call_.rows.first / kExpandedRows; }
  [[nodiscard]] std::uint32_t row_stride() const { return padded(dims_.row()); }
  // Rows of W_UK and then of W_UV; each begins a tile of its own.
  [[nodiscard]] std::uint32_t num_key_tiles() const {
    return (dims_.nope + kKeyTileRows - 1) / kKeyTileRows;
  }
  [[nodiscard]] std::uint32_t num_tiles() const {
    return num_key_tiles() + (dims_.v + kKeyTileRows - 1) / kKeyTileRows;
  }

  void make_tiles(std::uint32_t head, ThreadScratch& scratch) const {
    const std::uint64_t h = call_.first_head + head;
    float* to = scratch.keys.reserve(0);
    const auto add = [&](const float* weights, std::uint32_t num_rows) {
      for (std::uint32_t first = 0; first < num_rows; first += kKeyTileRows) {
        const float* rows[kKeyTileRows] = {};
        const std::uint32_t count = std::min(kKeyTileRows, num_rows - first);
        for (std::uint32_t i = 0; i < count; ++i) {
          rows[i] = weights + std::size_t{first + i} * dims_.latent;
        }
        state_.kernels->transpose({rows, count, dims_.latent, to});
        to += std::size_t{kKeyTileRows} * dims_.latent;
      }
    };
    add(call_.weights->w_uk.data() + h * dims_.nope * dims_.latent, dims_.nope);
    add(call_.weights->w_uv.data() + h * dims_.v * dims_.latent, dims_.v);
  }

  // The rows of one block in f32.
  void decode_rows(const RowChunk& chunk, float* rows) const {
    const CacheView& view = *call_.view;
    for (std::uint32_t i = 0; i < chunk.end_row; ++i) {
      const std::byte* from = view.k.base + chunk.k[i];
      float* to = rows + std::size_t{i} * row_stride();
      decode_(from, to, view.k.width);
      if (decode_tail_ == nullptr) continue;
      decode_tail_(from + (view.k_tail.base - view.k.base), to + view.k.width, view.k_tail.width);
    }
  }

  void expand_block(std::uint32_t head, std::uint64_t block, ThreadScratch& scratch) const {
    const SequenceView& sequence = call_.view->sequences[call_.sequence];
    const std::uint64_t block_begin = (first_block() + block) * kExpandedRows;
    const RowRange rows{std::max(call_.rows.first, block_begin), call_.rows.end};
    RowChunk& chunk = scratch.chunks[0];
    if (call_.is_selected) {
      fill_chunk(*call_.view, sequence, call_.selection, rows, chunk);
    } else {
      fill_chunk({*call_.view}, sequence, rows, chunk);
    }
    float* decoded = scratch.slab.reserve(0);
    decode_rows(chunk, decoded);
    const std::size_t place =
        (block * call_.num_heads + head) * kExpandedRows + (rows.first - block_begin);
    float* keys = call_.keys + place * dims_.key();
    float* values = call_.values + place * dims_.v;
    for (std::uint32_t first = 0; first < chunk.end_row; first += kMaxQueryTile) {
      const std::uint32_t count = std::min(kMaxQueryTile, chunk.end_row - first);
      pack(decoded + std::size_t{first} * row_stride(), count, scratch);
      multiply(0, dims_.nope, {keys + std::size_t{first} * dims_.key(), dims_.key(), count},
               scratch);
      multiply(num_key_tiles(), dims_.v, {values + std::size_t{first} * dims_.v, dims_.v, count},
               scratch);
    }
    for (std::uint32_t i = 0; i < chunk.end_row; ++i) {
      std::copy_n(decoded + std::size_t{i} * row_stride() + dims_.latent, dims_.rope,
                  keys + std::size_t{i} * dims_.key() + dims_.nope);
    }
  }

  void pack(const float* rows, std::uint32_t count, ThreadScratch& scratch) const {
    const float* starts[kMaxQueryTile] = {};
    for (std::uint32_t g = 0; g < count; ++g) starts[g] = rows + std::size_t{g} * row_stride();
    state_.kernels->pack_query_tile({.rows = starts,
                                     .num_queries = count,
                                     .tile = kMaxQueryTile,
                                     .dim = dims_.latent,
                                     .stride = padded(dims_.latent),
                                     .scale = 1,
                                     .out = scratch.queries.reserve(0)});
  }

  struct Target {
    float* begin;
    std::uint32_t stride;
    std::uint32_t num_rows;
  };
  // The packed rows times `num_outputs` rows of the weights from tile `first_tile` on.
  void multiply(std::uint32_t first_tile, std::uint32_t num_outputs, const Target& to,
                ThreadScratch& scratch) const {
    constexpr std::uint32_t kTilesAtOnce = kChunkRows / kKeyTileRows;
    constexpr std::uint32_t kLargestTile = kNumQueryTiles - 1;
    const std::size_t tile_floats = std::size_t{kKeyTileRows} * dims_.latent;
    std::uint64_t offsets[kTilesAtOnce];
    for (std::uint32_t i = 0; i < kTilesAtOnce; ++i) offsets[i] = i * tile_floats * sizeof(float);
    float* scores = scratch.scores.reserve(0);
    for (std::uint32_t j = 0; j < num_outputs; j += kChunkRows) {
      const std::uint32_t count = std::min(kChunkRows, num_outputs - j);
      ScoreArgs args;
      args.k = reinterpret_cast<const std::byte*>(scratch.keys.reserve(0) +
                                                  (first_tile + j / kKeyTileRows) * tile_floats);
      args.offsets = offsets;
      args.q = scratch.queries.reserve(0);
      args.scores = scores;
      args.count = (count + kKeyTileRows - 1) / kKeyTileRows;
      args.dim = dims_.latent;
      state_.kernels->score_tiles[kF32][kLargestTile](args);
      for (std::uint32_t g = 0; g < to.num_rows; ++g) {
        std::copy_n(scores + std::size_t{g} * kChunkRows, count,
                    to.begin + std::size_t{g} * to.stride + j);
      }
    }
  }

  RunnerState& state_;
  const LatentDims& dims_;
  const ExpandCall& call_;
  DecodeFunction decode_ = nullptr;
  DecodeFunction decode_tail_ = nullptr;
};

}  // namespace

void expand_rows(RunnerState& state, const LatentDims& dims, const ExpandCall& call) {
  Expander(state, dims, call).run();
}

}  // namespace kvarto
