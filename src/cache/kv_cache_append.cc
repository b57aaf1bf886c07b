// Growth: append, trim, and the removal of rows by a policy.

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
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
                              num_tokens, held + plan.num_taken,
                              to_string(store.track.lifetime)));
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
