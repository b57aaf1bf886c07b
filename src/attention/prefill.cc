#include "attention/prefill.h"

#include <algorithm>
#include <atomic>

#include "attention/call_check.h"
#include "attention/code_pass.h"
#include "attention/fill.h"
#include "attention/partial_result.h"
#include "attention/wide_pass.h"

namespace kvarto {
namespace {

// Queries of one work item (positions x query group): enough that bringing a chunk
// into the compute format once costs little beside its arithmetic, few enough that
// their accumulators stay in L2.
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
        wide_(work.shape),
        runs_passes_(work.shape.is_integer || work.shape.slab.is_used),
        shape_(runs_passes_ ? work.shape : wide_.pass) {
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
        // Most likely this thread's next one; it matters for speed alone.
        const std::size_t upcoming = next.load(std::memory_order_relaxed);
        const PrefillItem* after = upcoming < items_.size() ? &items_[upcoming] : nullptr;
        head_rows.fetch_add(run_item(items_[i], after, work_.scratch[thread]),
                            std::memory_order_relaxed);
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

  // Queries of an item as kernels take them: tiles, or whole blocks.
  [[nodiscard]] std::vector<QueryTile> tiles_of(std::uint32_t num_queries) const {
    return shape_.is_integer ? tile_queries(num_queries) : whole_query_tiles(num_queries);
  }

  // Makes room for the largest item here, where running out of memory can be reported.
  void reserve(ThreadScratch& scratch) const {
    const std::uint32_t num_queries = item_positions_ * group_size_ + kMaxQueryTile;
    if (runs_passes_) {
      scratch.states.reserve(head_state_floats(shape_, num_queries));
      scratch.queries.reserve(std::size_t{num_queries} * shape_.q_stride);
      scratch.scores.reserve(std::size_t{num_queries} * kChunkRows);
      scratch.codes.reserve(code_scratch_floats(shape_, num_queries));
      scratch.slab.reserve(slab_floats(shape_));
    } else {
      reserve_wide(wide_, num_queries, scratch);
    }
    scratch.out_places.reserve(num_queries);
    scratch.q_places.reserve(num_queries);
    scratch.rows.reserve(num_queries);
    scratch.distances.reserve(num_queries);
    scratch.slopes.reserve(num_queries);
    scratch.query_first.reserve(num_queries);
    scratch.query_end.reserve(num_queries);
  }

  // Returns the rows read. `after`: the item whose queries are needed next, or null.
  std::uint64_t run_item(const PrefillItem& item, const PrefillItem* after,
                         ThreadScratch& scratch) const {
    const SequenceView& sequence = view_.sequences[item.sequence];
    const std::uint64_t first_position =
        sequence.num_tokens - work_.call->q_lens[item.sequence] + item.first_query;
    const std::uint32_t num_queries = item.num_positions * group_size_;
    const std::vector<QueryTile> tiles = tiles_of(num_queries);
    const std::uint32_t padded = tiles.back().first + tiles.back().size;
    const HeadState state = head_state_at(shape_, padded, scratch.states.reserve(0));
    clear(shape_, padded, state);
    pack(item, tiles, padded, scratch);

    RowRange rest = visible_rows(first_position, work_.call->options);
    rest.end = visible_rows(first_position + item.num_positions - 1, work_.call->options).end;
    const std::uint64_t num_rows = rest.num_rows();
    const ChunkPlaces places = chunk_places(view_, work_.shape);
    RowChunk& chunk = scratch.chunks[0];
    while (rest.num_rows() != 0) {
      rest.first = fill_chunk(places, sequence, rest, chunk);
      const bool is_partial = set_visible(chunk, first_position, num_queries, scratch);
      if (runs_passes_) {
        attend_pass(item, tiles, is_partial, state, scratch);
      } else {
        WidePassArgs args = wide_args(item, padded, is_partial, scratch);
        if (rest.num_rows() == 0) {
          args.soon[0] =
              places_of(item, call_floats(work_.call->out), shape_.v_dim, scratch.out_places);
          if (after != nullptr) {
            args.soon[1] =
                places_of(*after, call_floats(work_.call->q), shape_.qk_dim, scratch.q_places);
          }
        }
        run_wide_pass(wide_, args, state);
      }
    }
    write(item, state);
    return num_rows;
  }

  // The rows of one head of the chunk.
  [[nodiscard]] StoredRows stored_rows(std::uint32_t head, const RowChunk& chunk) const {
    StoredRows rows;
    rows.chunk = &chunk;
    rows.k = view_.k.base + head * view_.k.layout.head_stride_bytes;
    rows.v = view_.v.base + head * view_.v.layout.head_stride_bytes;
    rows.k_scales = scales_of(view_.k, work_.shape.k_codes, head);
    rows.v_scales = scales_of(view_.v, work_.shape.v_codes, head);
    return rows;
  }

  void attend_pass(const PrefillItem& item, std::span<const QueryTile> tiles, bool is_partial,
                   const HeadState& state, ThreadScratch& scratch) const {
    const StoredRows rows = stored_rows(item.head, scratch.chunks[0]);
    PassArgs args;
    args.chunk = rows.chunk;
    args.k = rows.k;
    args.v = rows.v;
    args.k_scales = rows.k_scales;
    args.v_scales = rows.v_scales;
    args.code_scratch = scratch.codes.reserve(0);
    args.slab = scratch.slab.reserve(0);
    args.slab_chunk = &scratch.slab_chunk;
    args.q = scratch.queries.reserve(0);
    args.scores = scratch.scores.reserve(0);
    args.slopes = scratch.slopes.empty() ? nullptr : scratch.slopes.data();
    args.distances = scratch.distances.data();
    if (is_partial) {
      args.query_first = scratch.query_first.data();
      args.query_end = scratch.query_end.data();
    }
    run_pass(shape_, tiles, args, state);
  }

  [[nodiscard]] WidePassArgs wide_args(const PrefillItem& item, std::uint32_t padded,
                                       bool is_partial, ThreadScratch& scratch) const {
    WidePassArgs args;
    args.rows = fill_wide(wide_, stored_rows(item.head, scratch.chunks[0]), scratch);
    args.num_padded = padded;
    args.q = scratch.queries.reserve(0);
    args.scores = scratch.scores.reserve(0);
    args.slopes = scratch.slopes.empty() ? nullptr : scratch.slopes.data();
    args.distances = scratch.distances.data();
    if (is_partial) {
      args.query_first = scratch.query_first.data();
      args.query_end = scratch.query_end.data();
    }
    return args;
  }

  [[nodiscard]] static const std::byte* call_floats(std::span<const float> floats) {
    return std::as_bytes(floats).data();
  }

  // The rows of q or out of an item: they come from far away, and are prefetched.
  [[nodiscard]] WidePrefetch places_of(const PrefillItem& item, const std::byte* base,
                                       std::uint32_t dim,
                                       std::vector<std::uint64_t>& places) const {
    const std::uint32_t row_bytes = dim * static_cast<std::uint32_t>(sizeof(float));
    places.resize(std::size_t{item.num_positions} * group_size_);
    for (std::uint32_t i = 0; i < places.size(); ++i) places[i] = row_of(item, i) * row_bytes;
    return {base, places.data(), static_cast<std::uint32_t>(places.size()), row_bytes};
  }

  void pack(const PrefillItem& item, std::span<const QueryTile> tiles, std::uint32_t padded,
            ThreadScratch& scratch) const {
    const std::uint32_t num_queries = item.num_positions * group_size_;
    scratch.rows.resize(num_queries);
    scratch.distances.assign(padded, 0.0f);
    scratch.query_first.assign(padded, 0);
    scratch.query_end.assign(padded, 0);
    const std::span<const float> slopes = work_.call->options.alibi_slopes;
    scratch.slopes.assign(slopes.empty() ? 0 : padded, 0.0f);
    for (std::uint32_t i = 0; i < num_queries; ++i) {
      scratch.rows[i] = work_.call->q.data() + row_of(item, i) * shape_.qk_dim;
      if (!slopes.empty()) {
        scratch.slopes[i] = slopes[item.head * group_size_ + i % group_size_] * kLog2E;
      }
    }
    float* packed = scratch.queries.reserve(0);
    if (runs_passes_) return pack_queries(shape_, tiles, scratch.rows, packed);
    wide_.kernels->pack_queries(
        {scratch.rows.data(), num_queries, shape_.qk_dim, shape_.query_scale, packed});
  }

  // Row of q and out that query i of an item is.
  [[nodiscard]] std::size_t row_of(const PrefillItem& item, std::uint32_t i) const {
    const std::uint64_t token = query_begin_[item.sequence] + item.first_query + i / group_size_;
    return token * work_.call->num_q_heads + item.head * group_size_ + i % group_size_;
  }

  // Later queries see later rows, so the first and the last decide for all.
  [[nodiscard]] bool all_see(const RowChunk& chunk, std::uint64_t first_position,
                             std::uint32_t num_queries) const {
    const std::uint64_t last_position = first_position + (num_queries - 1) / group_size_;
    return visible_rows(first_position, work_.call->options).end >=
               chunk.first_position + chunk.end_row &&
           visible_rows(last_position, work_.call->options).first <=
               chunk.first_position + chunk.first_row;
  }

  // The rows of the chunk that each query sees; false if every query sees all
  // of them.
  bool set_visible(const RowChunk& chunk, std::uint64_t first_position, std::uint32_t num_queries,
                   ThreadScratch& scratch) const {
    const std::uint64_t begin = chunk.first_position;
    if (scratch.slopes.empty() && all_see(chunk, first_position, num_queries)) return false;
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
      const PartialResult part{state.acc + std::size_t{i} * shape_.acc_stride,
                               state.sum + std::size_t{i} * kPadFloats, state.maximum[i]};
      std::optional<float> sink;
      if (!call.options.sink_logits.empty()) {
        sink = call.options.sink_logits[item.head * group_size_ + i % group_size_];
      }
      const std::size_t row = row_of(item, i);
      const float lse = merge_results(*work_.shape.kernels, {&part, 1}, sink,
                                      call.out.subspan(row * shape_.v_dim, shape_.v_dim));
      if (!call.lse.empty()) call.lse[row] = lse;
    }
  }

  const PrefillWork& work_;
  const CacheView& view_;
  std::uint32_t group_size_;
  std::uint32_t item_positions_;
  WideShape wide_;
  bool runs_passes_ = false;                // run_pass(): integer codes, rows that are K and V
  const PassShape& shape_;                  // that runs
  std::vector<std::uint64_t> query_begin_;  // by sequence
  std::vector<PrefillItem> items_;
};

}  // namespace

void run_prefill(const PrefillWork& work, AttentionReport& report) { Prefiller(work).run(report); }

}  // namespace kvarto
