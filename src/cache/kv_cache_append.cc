// Growth: append, trim, and the removal of rows by a policy.

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/checked.h"
#include "cache/kv_cache_impl.h"

namespace kvarto {

AppendPlan KvCache::Impl::plan_append(std::uint32_t track_index, std::uint32_t slot,
                                      std::uint64_t num_tokens) const {
  const TrackStore& store = stores[track_index];
  const Track& track = store.track;
  const Sequence& sequence = sequences[slot];
  const TableRange& range = sequence.ranges[track_index];
  const std::span<const std::uint32_t> entries = table(track_index, slot);
  AppendPlan plan;
  if (store.is_constant()) {
    plan.num_taken = range.num_blocks == 0 ? 1 : 0;
    plan.copies_tail = range.num_blocks == 1 && is_shared(store, entries[0]);
    return plan;
  }
  const std::uint64_t before = sequence.num_tokens;
  const std::uint64_t rows_before = num_rows(track, before, range.removed_rows);
  const std::uint64_t rows_after = num_rows(track, before + num_tokens, range.removed_rows);
  const std::uint64_t end_before = range.first_block + range.num_blocks;
  // What the first new token sees stays, and with it what all later ones see.
  const std::uint64_t first_kept =
      std::min(std::max(first_held_block(track, before + 1), range.first_block), end_before);
  plan.num_dropped = first_kept - range.first_block;
  for (std::uint64_t i = 0; i < plan.num_dropped; ++i) {
    if (!is_shared(store, entries[i])) ++plan.num_freed;
  }
  plan.num_taken = end_block(track, before + num_tokens, range.removed_rows) - end_before;
  plan.copies_tail = rows_after > rows_before && rows_before % track.rows_per_block != 0 &&
                     is_shared(store, entries[range.num_blocks - 1]);
  return plan;
}

void KvCache::Impl::apply_append(std::uint32_t track_index, std::uint32_t slot,
                                 std::uint64_t num_tokens, const AppendPlan& plan) {
  TrackStore& store = stores[track_index];
  const Sequence& sequence = sequences[slot];
  TableRange& range = sequences[slot].ranges[track_index];
  const std::span<std::uint32_t> entries = table(track_index, slot);
  drop_front(track_index, slot, plan.num_dropped);
  if (plan.copies_tail) make_own(store, entries[range.num_blocks - 1]);
  if (range.is_tail_dirty &&
      num_rows(store.track, sequence.num_tokens + num_tokens, range.removed_rows) >
          num_rows(store.track, sequence.num_tokens, range.removed_rows)) {
    const std::uint64_t rows = num_rows(store.track, sequence.num_tokens, range.removed_rows);
    clear_tail(store, entries[range.num_blocks - 1], rows % store.track.rows_per_block);
    range.is_tail_dirty = false;
  }
  for (std::uint64_t i = 0; i < plan.num_taken; ++i) {
    KVARTO_CHECK(range.num_blocks < entries.size());
    entries[range.num_blocks++] = take_block(store, Content::kZeros);
  }
}

Result<Grant> KvCache::append(SequenceId id, std::uint64_t num_tokens) {
  Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t slot, impl.slot_of(id));
  Sequence& sequence = impl.sequences[slot];
  if (num_tokens == 0) return Grant::kDone;
  if (num_tokens > impl.options.micro_batch) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("append: {} tokens at once, expected at most micro_batch = {}",
                            num_tokens, impl.options.micro_batch));
  }
  if (num_tokens > impl.options.context - sequence.num_tokens) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("append: {} tokens to a sequence of {}, expected at most {} in all",
                            num_tokens, sequence.num_tokens, impl.options.context));
  }
  for (std::uint32_t track = 0; track < impl.stores.size(); ++track) {
    const TrackStore& store = impl.stores[track];
    const AppendPlan plan = impl.plan_append(track, slot, num_tokens);
    const std::uint64_t held = sequence.ranges[track].num_blocks - plan.num_dropped;
    if (!store.is_constant() && held + plan.num_taken > store.table_entries) {
      // Only a policy's track can come here: the others' tables hold every length.
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("append: {} tokens leave {} blocks where the rows kept are at most "
                              "{}, expected keep_rows() before",
                              num_tokens, held + plan.num_taken, to_string(store.track.lifetime)));
    }
    if (plan.num_needed() > store.pool.num_free() + plan.num_freed) return Grant::kNoFreeBlock;
    impl.append_plans[track] = plan;
  }
  for (std::uint32_t track = 0; track < impl.stores.size(); ++track) {
    impl.apply_append(track, slot, num_tokens, impl.append_plans[track]);
  }
  sequence.num_tokens += num_tokens;
  return Grant::kDone;
}

Result<Grant> KvCache::keep_rows(SequenceId id, StreamId stream,
                                 std::span<const std::uint64_t> rows) {
  Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t slot, impl.slot_of(id));
  KVARTO_TRY(const SliceArray* slice, impl.slice_of(stream));
  TrackStore& store = impl.stores[slice->track];
  TableRange& range = impl.sequences[slot].ranges[slice->track];
  const std::uint64_t held =
      num_rows(store.track, impl.sequences[slot].num_tokens, range.removed_rows);
  if (store.track.lifetime.kind != Lifetime::Kind::kKept) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("keep_rows: a stream of lifetime {}, expected kept",
                            to_string(store.track.lifetime)));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= held || (i > 0 && rows[i] <= rows[i - 1])) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("keep_rows: row {} at index {}, expected ascending rows below {}",
                              rows[i], i, held));
    }
  }
  return impl.move_rows(slice->track, slot, rows);
}

// Moves the kept rows to the begin. A row never moves up, so that blocks of its own can be changed
// in place; shared blocks are left to the others and replaced.
Grant KvCache::Impl::move_rows(std::uint32_t track, std::uint32_t slot,
                               std::span<const std::uint64_t> rows) {
  TrackStore& store = stores[track];
  TableRange& range = sequences[slot].ranges[track];
  const std::span<std::uint32_t> entries = table(track, slot);
  const std::uint64_t per_block = store.track.rows_per_block;
  std::uint64_t unmoved = 0;
  while (unmoved < rows.size() && rows[unmoved] == unmoved) ++unmoved;
  const std::uint64_t held = num_rows(store.track, sequences[slot].num_tokens, range.removed_rows);
  if (rows.size() == held) return Grant::kDone;
  const std::uint64_t end = ceil_div(rows.size(), per_block);
  // Blocks before the first row that moves stay as they are, shared or not.
  const std::uint64_t first_changed = unmoved / per_block;
  std::uint64_t num_shared = 0;
  for (std::uint64_t i = first_changed; i < end; ++i) {
    if (is_shared(store, entries[i])) ++num_shared;
  }
  if (num_shared > store.pool.num_free()) return Grant::kNoFreeBlock;
  for (std::uint64_t i = first_changed; i < end; ++i) {
    if (is_shared(store, entries[i])) make_own(store, entries[i]);
  }
  for (std::uint64_t to = unmoved; to < rows.size(); ++to) {
    for (const StreamId id : store.slices) {
      const SliceArray& slice = slices[static_cast<std::uint32_t>(id)];
      copy_row(slice.shape, slice_begin(slice, entries[rows[to] / per_block]), rows[to] % per_block,
               slice_begin(slice, entries[to / per_block]), to % per_block);
    }
  }
  drop_back(track, slot, range.num_blocks - end);
  range.removed_rows += held - rows.size();
  range.is_tail_dirty = rows.size() % per_block != 0;
  return Grant::kDone;
}

Status KvCache::trim(SequenceId id) {
  Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t slot, impl.slot_of(id));
  for (std::uint32_t track = 0; track < impl.stores.size(); ++track) {
    const TableRange& range = impl.sequences[slot].ranges[track];
    const std::uint64_t first =
        first_held_block(impl.stores[track].track, impl.sequences[slot].num_tokens);
    if (first > range.first_block) impl.drop_front(track, slot, first - range.first_block);
  }
  return {};
}

}  // namespace kvarto
