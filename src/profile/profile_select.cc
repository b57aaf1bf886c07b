// The part of a profile's loop that an indexer has: which rows it picks, and attention over them.

#include <chrono>

#include "profile/profile_loop.h"

namespace kvarto {

Status ProfileLoop::select(const CacheView& view, StreamId index,
                           std::span<const std::uint64_t> q_lens) {
  // Rows and index keys are of one track: their block tables are the same.
  SelectCall call;
  call.view = view;
  KVARTO_TRY(call.view.k, cache_.stream_view(index));
  call.view.k_tail = {};
  call.q_lens = q_lens;
  call.num_index_heads = indexing_group().query.index_heads;
  call.top_k = group().streams.front().access.count;
  // Every token of a prefill has the query of its sequence's decode steps.
  const std::size_t repeats = q_lens.empty() ? 1 : q_lens.front();
  std::vector<float> q;
  std::vector<float> weights;
  for (std::size_t i = 0; i < repeats; ++i) {
    q.insert(q.end(), index_q_.begin(), index_q_.end());
    weights.insert(weights.end(), index_weights_.begin(), index_weights_.end());
  }
  call.q = q;
  call.weights = weights;
  const bool is_f32 = options_.arith == Arith::kAuto || options_.arith == Arith::kF32;
  call.arith = is_f32 ? IndexArith::kF32 : IndexArith::kInt16;
  KVARTO_TRY(const SelectReport report, runner_.select(call, selection_));
  selected_.rows_read += report.rows_read;
  selected_.bytes_read += report.bytes_read;
  return {};
}

Status ProfileLoop::select_shared(const CacheView& view, std::span<const std::uint64_t> q_lens) {
  if (!shared_index_) return {};
  const auto begin = std::chrono::steady_clock::now();
  const SelectReport selected = selected_;
  KVARTO_CHECK_OK(select(view, *shared_index_, q_lens));
  selected_ = selected;  // what it read is the other layer's
  shared_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {};
}

Status ProfileLoop::attend_selected(const CacheView& view, std::span<const std::uint64_t> q_lens,
                                    std::span<const float> q, std::span<float> out) {
  const std::vector<SequenceView> queries = query_views(view.sequences, q_lens);
  DecodeCall call;
  call.view = view;
  call.view.sequences = queries;
  call.num_q_heads = group().query.q_heads;
  call.q = q;
  call.options = options_;
  call.out = out;
  call.selections = selection_.queries();
  KVARTO_CHECK_OK(runner_.decode(call));
  return {};
}

}  // namespace kvarto
