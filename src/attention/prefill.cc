#include "attention/prefill.h"

#include <algorithm>
#include <atomic>

#include "attention/call_check.h"
#include "attention/code_pass.h"
#include "attention/fill.h"
#include "attention/partial_result.h"

namespace kvarto {
namespace {

// Queries of one work item (positions x query group): enough that converting a
// chunk to f32 once costs little beside its arithmetic, few enough that their
// accumulators stay in L2.
constexpr std::uint32_t kItemQueries = 128;

// Consecutive query positions of one sequence against one KV head.
struct PrefillItem {
  std::uint32_t sequence = 0;
  std::uint32_t head = 0;
  std::uint64_t first_query = 0;  // among the sequence's queries
  std::uint32_t num_positions = 0;
};

class Prefiller {
 public:
  explicit Prefiller(const PrefillWork& work)
      : work_(work),
        view_(work.call->view),
        group_size_(work.call->num_q_heads / view_.k.heads),
        item_positions_(std::max(1u, kItemQueries / group_size_)),
        slab_shape_(work.shape) {
    if (!work.is_direct) {
      // Chunks are brought into f32 tiles and rows before any query reads them.
      slab_shape_.k_element = Element::kF32;
      slab_shape_.v_element = Element::kF32;
      slab_shape_.is_tiled = true;
      slab_shape_.k_fill = nullptr;
      slab_shape_.v_fill = nullptr;
      slab_shape_.k_codes = {};
      slab_shape_.v_codes = {};
    }
    const auto decoder = [&](const StreamView& stream) {
      return work_.shape.kernels->decode[static_cast<std::size_t>(stream.codec)];
    };
    k_to_f32_ = decoder(view_.k);
    v_to_f32_ = decoder(view_.v);
    std::uint64_t query = 0;
    for (std::uint32_t s = 0; s < view_.sequences.size(); ++s) {
      query_begin_.push_back(query);
      query += work.call->q_lens[s];
      add_items(s);
    }
  }

  void run(AttentionReport& report) {
    for (ThreadScratch& scratch : work_.scratch) reserve(scratch);
    std::atomic<std::size_t> next{0};
    std::atomic<std::uint64_t> head_rows{0};
    work_.pool->run([&](std::size_t thread) {
      for (std::size_t i = next.fetch_add(1, std::memory_order_relaxed); i < items_.size();
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        head_rows.fetch_add(run_item(items_[i], work_.scratch[thread]), std::memory_order_relaxed);
      }
    });
    report.num_work_items = items_.size();
    report.rows_read = head_rows.load() / view_.k.heads;
    const RowPairBytes bytes = row_pair_bytes(view_);
    report.bytes_read = report.rows_read * (bytes.k + bytes.v);
  }

 private:
  // Head after head, so that its rows stay in L2; the longest items first, so
  // that the threads end together.
  void add_items(std::uint32_t sequence) {
    const std::uint64_t num_queries = work_.call->q_lens[sequence];
    for (std::uint32_t head = 0; head < view_.k.heads; ++head) {
      for (std::uint64_t end = num_queries; end > 0;) {
        const std::uint64_t first = (end - 1) / item_positions_ * item_positions_;
        items_.push_back({sequence, head, first, static_cast<std::uint32_t>(end - first)});
        end = first;
      }
    }
  }

  // Makes room for the largest item here, where running out of memory can be reported.
  void reserve(ThreadScratch& scratch) const {
    const std::size_t num_padded = std::size_t{item_positions_} * group_size_ + kMaxQueryTile;
    scratch.states.reserve(head_state_floats(slab_shape_, static_cast<std::uint32_t>(num_padded)));
    scratch.queries.reserve(num_padded * slab_shape_.q_stride);
    scratch.scores.reserve(num_padded * kChunkRows);
    scratch.codes.reserve(code_scratch_floats(work_.shape, static_cast<std::uint32_t>(num_padded)));
    if (work_.is_direct) {
      scratch.keys.reserve(joined_key_bytes(slab_shape_, num_padded) / sizeof(float));
      scratch.slab.reserve(slab_floats(work_.shape));
    } else {
      scratch.keys.reserve(std::size_t{kChunkRows} * work_.shape.qk_dim);
      scratch.values.reserve(std::size_t{kChunkRows} * work_.shape.acc_stride);
      scratch.key_rows.reserve(std::size_t{kKeyTileRows} * work_.shape.q_stride);
    }
    scratch.rows.reserve(num_padded);
    scratch.distances.reserve(num_padded);
    scratch.slopes.reserve(num_padded);
    scratch.query_first.reserve(num_padded);
    scratch.query_end.reserve(num_padded);
  }

  // Returns the rows read.
  std::uint64_t run_item(const PrefillItem& item, ThreadScratch& scratch) const {
    const SequenceView& sequence = view_.sequences[item.sequence];
    const std::uint64_t first_position =
        sequence.num_tokens - work_.call->q_lens[item.sequence] + item.first_query;
    const std::uint32_t num_queries = item.num_positions * group_size_;
    const std::vector<QueryTile> tiles =
        slab_shape_.slab.is_used ? whole_query_tiles(num_queries) : tile_queries(num_queries);
    const std::uint32_t num_padded = tiles.back().first + tiles.back().size;
    const HeadState state =
        head_state_at(slab_shape_, num_padded,
                      scratch.states.reserve(head_state_floats(slab_shape_, num_padded)));
    clear(slab_shape_, num_padded, state);
    pack(item, tiles, num_padded, scratch);

    RowRange rest = visible_rows(first_position, work_.call->options);
    rest.end = visible_rows(first_position + item.num_positions - 1, work_.call->options).end;
    const std::uint64_t num_rows = rest.num_rows();
    const ChunkPlaces places = chunk_places(view_, work_.shape);
    RowChunk& chunk = scratch.chunks[0];
    while (rest.num_rows() != 0) {
      rest.first = fill_chunk(places, sequence, rest, chunk);
      PassArgs args;
      if (work_.is_direct) {
        args.chunk = &chunk;
        args.k = view_.k.base + item.head * view_.k.layout.head_stride_bytes;
        args.v = view_.v.base + item.head * view_.v.layout.head_stride_bytes;
        if (joined_key_bytes(slab_shape_, tiles.size()) != 0) {
          args.joined = reinterpret_cast<std::byte*>(scratch.keys.reserve(0));
        }
        args.k_scales = scales_of(view_.k, work_.shape.k_codes, item.head);
        args.v_scales = scales_of(view_.v, work_.shape.v_codes, item.head);
        args.code_scratch = scratch.codes.reserve(0);
        args.slab = scratch.slab.reserve(0);
        args.slab_chunk = &scratch.slab_chunk;
      } else {
        fill_slabs(item.head, chunk, scratch);
        args.chunk = &scratch.chunks[1];
        args.k = reinterpret_cast<const std::byte*>(scratch.keys.reserve(0));
        args.v = reinterpret_cast<const std::byte*>(scratch.values.reserve(0));
      }
      args.q = scratch.queries.reserve(0);
      args.scores = scratch.scores.reserve(0);
      args.slopes = scratch.slopes.empty() ? nullptr : scratch.slopes.data();
      args.distances = scratch.distances.data();
      if (set_visible(chunk, first_position, num_queries, scratch)) {
        args.query_first = scratch.query_first.data();
        args.query_end = scratch.query_end.data();
      }
      run_pass(slab_shape_, tiles, args, state);
    }
    write(item, state);
    return num_rows;
  }

  void pack(const PrefillItem& item, std::span<const QueryTile> tiles, std::uint32_t num_padded,
            ThreadScratch& scratch) const {
    const std::uint32_t num_queries = item.num_positions * group_size_;
    scratch.rows.resize(num_queries);
    scratch.distances.assign(num_padded, 0.0f);
    scratch.query_first.assign(num_padded, 0);
    scratch.query_end.assign(num_padded, 0);
    scratch.scores.reserve(std::size_t{num_padded} * kChunkRows);
    const std::span<const float> slopes = work_.call->options.alibi_slopes;
    scratch.slopes.assign(slopes.empty() ? 0 : num_padded, 0.0f);
    for (std::uint32_t i = 0; i < num_queries; ++i) {
      scratch.rows[i] = work_.call->q.data() + row_of(item, i) * work_.shape.qk_dim;
      if (!slopes.empty()) {
        scratch.slopes[i] = slopes[item.head * group_size_ + i % group_size_] * kLog2E;
      }
    }
    float* packed = scratch.queries.reserve(std::size_t{num_padded} * slab_shape_.q_stride);
    pack_queries(slab_shape_, tiles, scratch.rows, packed);
  }

  // Row of q and out that query i of an item is.
  [[nodiscard]] std::size_t row_of(const PrefillItem& item, std::uint32_t i) const {
    const std::uint64_t token = query_begin_[item.sequence] + item.first_query + i / group_size_;
    return token * work_.call->num_q_heads + item.head * group_size_ + i % group_size_;
  }

  // Converts the rows of one head into f32: keys as tiles, values as rows.
  // chunks[1] then describes the slabs.
  void fill_slabs(std::uint32_t head, const RowChunk& chunk, ThreadScratch& scratch) const {
    RowChunk& slab = scratch.chunks[1];
    slab.first_position = chunk.first_position;
    slab.first_row = chunk.first_row;
    slab.end_row = chunk.end_row;
    slab.num_keys = (chunk.end_row + kKeyTileRows - 1) / kKeyTileRows;
    fill_keys(head, chunk, scratch);
    fill_values(head, chunk, scratch);
  }

  void fill_keys(std::uint32_t head, const RowChunk& chunk, ThreadScratch& scratch) const {
    RowChunk& slab = scratch.chunks[1];
    const std::size_t tile_floats = std::size_t{kKeyTileRows} * work_.shape.qk_dim;
    float* keys = scratch.keys.reserve(kChunkRows / kKeyTileRows * tile_floats);
    const std::byte* k = view_.k.base + head * view_.k.layout.head_stride_bytes;
    for (std::uint32_t tile = 0; tile < slab.num_keys; ++tile) {
      slab.k[tile] = tile * tile_floats * sizeof(float);
    }
    if (work_.shape.k_codes.is_tiled) {
      const std::byte* scales = scales_of(view_.k, work_.shape.k_codes, head);
      fill_code_keys({work_.shape, chunk, k, scales, scratch.codes.reserve(0), keys});
      return;
    }
    for (std::uint32_t tile = 0; tile < slab.num_keys; ++tile) {
      if (work_.shape.is_tiled) {
        k_to_f32_(k + chunk.k[tile], keys + tile * tile_floats, tile_floats);
      } else {
        transpose_rows(k, chunk, tile, keys + tile * tile_floats, scratch);
      }
    }
  }

  void fill_values(std::uint32_t head, const RowChunk& chunk, ThreadScratch& scratch) const {
    RowChunk& slab = scratch.chunks[1];
    const std::uint32_t stride = work_.shape.acc_stride;
    float* values = scratch.values.reserve(std::size_t{kChunkRows} * stride);
    const std::byte* v = view_.v.base + head * view_.v.layout.head_stride_bytes;
    for (std::uint32_t row = chunk.first_row; row < chunk.end_row; ++row) {
      slab.v[row] = std::uint64_t{row} * stride * sizeof(float);
    }
    if (work_.shape.v_codes.is_tiled) {
      const std::byte* scales = scales_of(view_.v, work_.shape.v_codes, head);
      fill_code_values({work_.shape, chunk, v, scales, scratch.codes.reserve(0), values, stride});
      return;
    }
    for (std::uint32_t row = chunk.first_row; row < chunk.end_row; ++row) {
      v_to_f32_(v + chunk.v[row], values + std::size_t{row} * stride, work_.shape.v_dim);
    }
  }

  void transpose_rows(const std::byte* k, const RowChunk& chunk, std::uint32_t tile, float* keys,
                      ThreadScratch& scratch) const {
    const std::uint32_t stride = work_.shape.q_stride;
    float* rows = scratch.key_rows.reserve(std::size_t{kKeyTileRows} * stride);
    const float* row_starts[kKeyTileRows] = {};
    TransposeArgs args;
    args.rows = row_starts;
    args.num_rows = std::min(kKeyTileRows, chunk.num_keys - tile * kKeyTileRows);
    args.dim = work_.shape.qk_dim;
    args.tile = keys;
    for (std::uint32_t r = 0; r < args.num_rows; ++r) {
      row_starts[r] = rows + std::size_t{r} * stride;
      k_to_f32_(k + chunk.k[tile * kKeyTileRows + r], rows + std::size_t{r} * stride,
                work_.shape.qk_dim);
    }
    work_.shape.kernels->transpose(args);
  }

  // The rows of the chunk that each query sees; false if every query sees all
  // of them.
  bool set_visible(const RowChunk& chunk, std::uint64_t first_position, std::uint32_t num_queries,
                   ThreadScratch& scratch) const {
    const std::uint64_t begin = chunk.first_position;
    bool is_partial = false;
    for (std::uint32_t i = 0; i < num_queries; ++i) {
      const std::uint64_t position = first_position + i / group_size_;
      const RowRange rows = visible_rows(position, work_.call->options);
      const auto inside = [&](std::uint64_t row) {
        const std::uint64_t offset = row > begin ? row - begin : 0;
        return std::clamp(static_cast<std::uint32_t>(std::min<std::uint64_t>(offset, kChunkRows)),
                          chunk.first_row, chunk.end_row);
      };
      scratch.query_first[i] = inside(rows.first);
      scratch.query_end[i] = inside(rows.end);
      is_partial |=
          scratch.query_first[i] != chunk.first_row || scratch.query_end[i] != chunk.end_row;
      scratch.distances[i] = static_cast<float>(static_cast<std::int64_t>(begin) -
                                                static_cast<std::int64_t>(position));
    }
    return is_partial;
  }

  void write(const PrefillItem& item, const HeadState& state) const {
    const PrefillCall& call = *work_.call;
    for (std::uint32_t i = 0; i < item.num_positions * group_size_; ++i) {
      const PartialResult part{state.acc + std::size_t{i} * slab_shape_.acc_stride,
                               state.sum + std::size_t{i} * kPadFloats, state.maximum[i]};
      std::optional<float> sink;
      if (!call.options.sink_logits.empty()) {
        sink = call.options.sink_logits[item.head * group_size_ + i % group_size_];
      }
      const std::size_t row = row_of(item, i);
      const float lse = merge_results(*work_.shape.kernels, {&part, 1}, sink,
                                      call.out.subspan(row * work_.shape.v_dim, work_.shape.v_dim));
      if (!call.lse.empty()) call.lse[row] = lse;
    }
  }

  const PrefillWork& work_;
  const CacheView& view_;
  std::uint32_t group_size_;
  std::uint32_t item_positions_;
  PassShape slab_shape_;
  DecodeFunction k_to_f32_ = nullptr;
  DecodeFunction v_to_f32_ = nullptr;
  std::vector<std::uint64_t> query_begin_;  // by sequence
  std::vector<PrefillItem> items_;
};

}  // namespace

void run_prefill(const PrefillWork& work, AttentionReport& report) { Prefiller(work).run(report); }

}  // namespace kvarto
