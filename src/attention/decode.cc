#include "attention/decode.h"

#include <chrono>

#include "attention/call_check.h"
#include "attention/code_pass.h"
#include "attention/fill.h"
#include "attention/partial_result.h"
#include "attention/split_plan.h"

namespace kvarto {
namespace {

// The queries of one segment's members, as tiles; equal for every KV head.
struct SegmentQueries {
  std::vector<QueryTile> tiles;
  std::uint32_t num_queries = 0;
  std::uint32_t num_padded = 0;
};

// One work item that covers a sequence, and which member of its segment the
// sequence is.
struct Part {
  std::size_t item = 0;
  std::uint32_t member = 0;
};

class Decoder {
 public:
  Decoder(const DecodeWork& work, std::span<const RowRange> visible)
      : work_(work),
        view_(work.call->view),
        group_size_(work.call->num_q_heads / view_.k.heads),
        selections_(work.call->selections),
        segments_(selections_.empty() ? plan_reads(view_.sequences, view_.rows_per_block, visible)
                                      : segments_apart(visible)),
        split_(plan_split(segments_, group_size_, work.pool->num_threads())) {
    for (const Segment& segment : segments_) {
      SegmentQueries queries;
      queries.num_queries = static_cast<std::uint32_t>(segment.members.size()) * group_size_;
      queries.tiles = work_.shape.slab.is_used ? whole_query_tiles(queries.num_queries)
                                               : tile_queries(queries.num_queries);
      queries.num_padded = queries.tiles.back().first + queries.tiles.back().size;
      queries_.push_back(std::move(queries));
    }
    find_parts();
  }

  // Runs all work items; what several of them share is left for merge().
  void run_items() {
    float* parts = work_.parts->reserve(part_floats_);
    for (ThreadScratch& scratch : work_.scratch) reserve(scratch);
    work_.pool->run([&](std::size_t thread) {
      for (std::size_t i = split_.thread_begin[thread]; i < split_.thread_begin[thread + 1]; ++i) {
        run_item(i, parts, work_.scratch[thread]);
      }
    });
  }

  void merge() {
    bool is_all_written = true;
    for (const std::uint8_t is_alone : is_alone_) is_all_written &= is_alone != 0;
    if (is_all_written) return;
    work_.pool->run([&](std::size_t thread) {
      for (std::size_t s = thread; s < parts_of_.size(); s += work_.pool->num_threads()) {
        if (!is_alone_[s]) merge_sequence(static_cast<std::uint32_t>(s));
      }
    });
  }

  void count(AttentionReport& report) const {
    report.num_work_items = split_.items.size();
    for (const WorkItem& item : split_.items) report.rows_read += item.rows.num_rows();
    const RowPairBytes bytes = row_pair_bytes(view_);
    report.bytes_read = report.rows_read * (bytes.k + bytes.v);
  }

  [[nodiscard]] std::vector<ReadRun> runs() const {
    std::vector<ReadRun> runs;
    for (const WorkItem& item : split_.items) {
      const std::uint32_t sequence = segments_[item.segment].members.front();
      if (selections_.empty()) {
        runs.push_back({sequence, item.rows.first, item.rows.num_rows()});
      } else {
        add_selected_runs(sequence, item.rows, runs);
      }
    }
    return runs;
  }

 private:
  static std::vector<Segment> segments_apart(std::span<const RowRange> ranges) {
    std::vector<Segment> segments;
    for (std::uint32_t s = 0; s < ranges.size(); ++s) {
      if (ranges[s].num_rows() != 0) segments.push_back({ranges[s], {s}});
    }
    return segments;
  }

  // Neighbours of a selection are one run.
  void add_selected_runs(std::uint32_t sequence, RowRange places,
                         std::vector<ReadRun>& runs) const {
    const std::span<const std::uint32_t> rows =
        selections_[sequence].subspan(places.first, places.num_rows());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i > 0 && rows[i] == rows[i - 1] + 1) {
        ++runs.back().num_rows;
      } else {
        runs.push_back({sequence, rows[i], 1});
      }
    }
  }

  // Fills a chunk with rows of `rest` and takes them from it.
  void next_chunk(std::uint32_t sequence, RowRange& rest, RowChunk& chunk) const {
    rest.first =
        selections_.empty()
            ? fill_chunk(chunk_places(view_, work_.shape), view_.sequences[sequence], rest, chunk)
            : fill_chunk(view_, view_.sequences[sequence], selections_[sequence], rest, chunk);
  }

  // Which items cover each sequence; items whose sequences have no other are
  // finished by the thread that runs them, the others leave their states in
  // `parts`.
  void find_parts() {
    parts_of_.resize(view_.sequences.size());
    for (std::size_t i = 0; i < split_.items.size(); ++i) {
      const Segment& segment = segments_[split_.items[i].segment];
      for (std::uint32_t m = 0; m < segment.members.size(); ++m) {
        parts_of_[segment.members[m]].push_back({i, m});
      }
    }
    is_alone_.resize(parts_of_.size());
    for (std::size_t s = 0; s < parts_of_.size(); ++s) is_alone_[s] = parts_of_[s].size() == 1;
    for (const WorkItem& item : split_.items) {
      bool is_final = true;
      for (const std::uint32_t s : segments_[item.segment].members) is_final &= is_alone_[s];
      is_final_.push_back(is_final);
      part_begin_.push_back(part_floats_);
      if (!is_final) part_floats_ += item_floats(item.segment);
    }
    for (std::size_t i = 0; i < split_.items.size(); ++i) {
      if (is_final_[i]) continue;
      for (const std::uint32_t s : segments_[split_.items[i].segment].members) is_alone_[s] = false;
    }
  }

  // Makes room for the largest segment here, where running out of memory can be reported.
  void reserve(ThreadScratch& scratch) const {
    for (std::uint32_t i = 0; i < segments_.size(); ++i) {
      const std::size_t num_padded = queries_[i].num_padded;
      scratch.states.reserve(item_floats(i));
      scratch.queries.reserve(num_padded * work_.shape.q_stride * view_.k.heads);
      scratch.scores.reserve(num_padded * kChunkRows);
      scratch.slab.reserve(slab_floats(work_.shape));
      scratch.keys.reserve(joined_key_bytes(work_.shape, queries_[i].tiles.size()) / sizeof(float));
      scratch.codes.reserve(code_scratch_floats(work_.shape, queries_[i].num_padded));
      scratch.rows.reserve(num_padded);
      scratch.distances.reserve(num_padded);
      if (!work_.call->options.alibi_slopes.empty()) {
        scratch.slopes.reserve(num_padded * view_.k.heads);
      }
    }
  }

  [[nodiscard]] std::size_t item_floats(std::uint32_t segment) const {
    return head_state_floats(work_.shape, queries_[segment].num_padded) * view_.k.heads;
  }

  void run_item(std::size_t index, float* parts, ThreadScratch& scratch) {
    const WorkItem& item = split_.items[index];
    const SegmentQueries& queries = queries_[item.segment];
    float* states = is_final_[index] ? scratch.states.reserve(item_floats(item.segment))
                                     : parts + part_begin_[index];
    for (std::uint32_t head = 0; head < view_.k.heads; ++head) {
      clear(work_.shape, queries.num_padded, state_of(item.segment, states, head));
    }
    pack(item, scratch);
    read_rows(item, states, scratch);
    if (!is_final_[index]) return;
    const Segment& segment = segments_[item.segment];
    for (std::uint32_t m = 0; m < segment.members.size(); ++m) {
      const Part part{index, m};
      write_sequence(segment.members[m], {&part, 1}, [&](std::size_t) { return states; });
    }
  }

  [[nodiscard]] HeadState state_of(std::uint32_t segment, float* states, std::uint32_t head) const {
    const std::uint32_t num_padded = queries_[segment].num_padded;
    return head_state_at(work_.shape, num_padded,
                         states + head_state_floats(work_.shape, num_padded) * head);
  }

  // Packs the queries and, with ALiBi, the slopes of all heads.
  void pack(const WorkItem& item, ThreadScratch& scratch) const {
    const Segment& segment = segments_[item.segment];
    const SegmentQueries& queries = queries_[item.segment];
    const std::size_t head_floats = std::size_t{queries.num_padded} * work_.shape.q_stride;
    float* packed = scratch.queries.reserve(head_floats * view_.k.heads);
    scratch.scores.reserve(std::size_t{queries.num_padded} * kChunkRows);
    scratch.rows.resize(queries.num_queries);
    scratch.distances.assign(queries.num_padded, 0.0f);
    const std::span<const float> slopes = work_.call->options.alibi_slopes;
    scratch.slopes.assign(slopes.empty() ? 0 : std::size_t{queries.num_padded} * view_.k.heads,
                          0.0f);
    for (std::uint32_t head = 0; head < view_.k.heads; ++head) {
      for (std::uint32_t i = 0; i < queries.num_queries; ++i) {
        const std::uint64_t q_head = std::uint64_t{head} * group_size_ + i % group_size_;
        const std::uint64_t sequence = segment.members[i / group_size_];
        scratch.rows[i] = work_.call->q.data() +
                          (sequence * work_.call->num_q_heads + q_head) * work_.shape.qk_dim;
        if (!slopes.empty()) {
          scratch.slopes[std::size_t{head} * queries.num_padded + i] = slopes[q_head] * kLog2E;
        }
      }
      pack_queries(work_.shape, queries.tiles, scratch.rows, packed + head_floats * head);
    }
  }

  // All heads of a chunk before the next chunk: the order in which the cache
  // lies in memory.
  void read_rows(const WorkItem& item, float* states, ThreadScratch& scratch) const {
    const Segment& segment = segments_[item.segment];
    const SegmentQueries& queries = queries_[item.segment];
    const std::uint32_t sequence = segment.members.front();
    RowRange rest = item.rows;
    RowChunk* chunk = &scratch.chunks[0];
    RowChunk* next = &scratch.chunks[1];
    next_chunk(sequence, rest, *chunk);
    for (bool has_more = true; has_more; std::swap(chunk, next)) {
      has_more = rest.num_rows() != 0;
      if (has_more) next_chunk(sequence, rest, *next);
      set_distances(segment, *chunk, scratch);
      for (std::uint32_t head = 0; head < view_.k.heads; ++head) {
        const bool is_last = head + 1 == view_.k.heads;
        const std::uint32_t next_head = is_last ? 0 : head + 1;
        PassArgs args;
        args.chunk = chunk;
        args.k = view_.k.base + head * view_.k.layout.head_stride_bytes;
        args.v = view_.v.base + head * view_.v.layout.head_stride_bytes;
        args.k_scales = scales_of(view_.k, work_.shape.k_codes, head);
        args.v_scales = scales_of(view_.v, work_.shape.v_codes, head);
        args.next_chunk = !is_last ? chunk : has_more ? next : nullptr;
        args.next_k = view_.k.base + next_head * view_.k.layout.head_stride_bytes;
        args.next_v = view_.v.base + next_head * view_.v.layout.head_stride_bytes;
        args.next_k_scales = scales_of(view_.k, work_.shape.k_codes, next_head);
        args.next_v_scales = scales_of(view_.v, work_.shape.v_codes, next_head);
        args.code_scratch = scratch.codes.reserve(0);
        args.q = scratch.queries.reserve(0) +
                 std::size_t{queries.num_padded} * work_.shape.q_stride * head;
        args.scores = scratch.scores.reserve(0);
        args.slab = scratch.slab.reserve(0);
        args.slab_chunk = &scratch.slab_chunk;
        if (joined_key_bytes(work_.shape, queries.tiles.size()) != 0) {
          args.joined = reinterpret_cast<std::byte*>(scratch.keys.reserve(0));
        }
        if (!scratch.slopes.empty()) {
          args.slopes = scratch.slopes.data() + std::size_t{queries.num_padded} * head;
        }
        args.distances = scratch.distances.data();
        run_pass(work_.shape, queries.tiles, args, state_of(item.segment, states, head));
      }
    }
  }

  void set_distances(const Segment& segment, const RowChunk& chunk, ThreadScratch& scratch) const {
    if (scratch.slopes.empty()) return;
    const std::size_t num_queries = segment.members.size() * group_size_;
    for (std::size_t i = 0; i < num_queries; ++i) {
      const std::uint64_t length = view_.sequences[segment.members[i / group_size_]].num_tokens;
      scratch.distances[i] = static_cast<float>(static_cast<std::int64_t>(chunk.first_position) -
                                                static_cast<std::int64_t>(length - 1));
    }
  }

  void merge_sequence(std::uint32_t sequence) const {
    float* parts = work_.parts->reserve(0);
    write_sequence(sequence, parts_of_[sequence],
                   [&](std::size_t item) { return parts + part_begin_[item]; });
  }

  // states_of(item): where the states of an item begin.
  template <typename StatesOf>
  void write_sequence(std::uint32_t sequence, std::span<const Part> parts,
                      const StatesOf& states_of) const {
    const DecodeCall& call = *work_.call;
    std::vector<PartialResult> results(parts.size());
    for (std::uint32_t q_head = 0; q_head < call.num_q_heads; ++q_head) {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::uint32_t segment = split_.items[parts[i].item].segment;
        const HeadState state = state_of(segment, states_of(parts[i].item), q_head / group_size_);
        const std::size_t query = std::size_t{parts[i].member} * group_size_ + q_head % group_size_;
        results[i] = {state.acc + query * work_.shape.acc_stride, state.sum + query * kPadFloats,
                      state.maximum[query]};
      }
      std::optional<float> sink;
      if (!call.options.sink_logits.empty()) sink = call.options.sink_logits[q_head];
      const std::size_t row = std::size_t{sequence} * call.num_q_heads + q_head;
      const float lse = merge_results(*work_.kernels, results, sink,
                                      call.out.subspan(row * work_.shape.v_dim, work_.shape.v_dim));
      if (!call.lse.empty()) call.lse[row] = lse;
    }
  }

  const DecodeWork& work_;
  const CacheView& view_;
  std::uint32_t group_size_;
  // Where there are any, the rows of segments and items are places in these lists.
  std::span<const std::span<const std::uint32_t>> selections_;
  std::vector<Segment> segments_;
  SplitPlan split_;
  std::vector<SegmentQueries> queries_;      // by segment
  std::vector<std::vector<Part>> parts_of_;  // by sequence
  std::vector<std::uint8_t> is_alone_;       // by sequence: written by the item that covers it
  std::vector<std::uint8_t> is_final_;       // by item
  std::vector<std::size_t> part_begin_;      // by item: place in `parts`
  std::size_t part_floats_ = 0;
};

}  // namespace

void run_decode(const DecodeWork& work, std::span<const RowRange> visible,
                AttentionReport& report) {
  if (work.observer == nullptr) {
    Decoder decoder(work, visible);
    decoder.run_items();
    decoder.merge();
    decoder.count(report);
    return;
  }
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  const Clock::time_point begin = Clock::now();
  Decoder decoder(work, visible);
  const Clock::time_point planned = Clock::now();
  decoder.run_items();
  const Clock::time_point passed = Clock::now();
  decoder.merge();
  const Clock::time_point merged = Clock::now();
  decoder.count(report);
  const std::vector<ReadRun> runs = decoder.runs();
  work.observer->decoded(work.call->view, {.runs = runs,
                                           .plan_s = seconds(planned - begin),
                                           .pass_s = seconds(passed - planned),
                                           .merge_s = seconds(merged - passed)});
}

}  // namespace kvarto
