// Going back: truncation rules, snapshots of constant states, forks.

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "cache/kv_cache_impl.h"

namespace kvarto {
namespace {

// Whether all rows that the last of `num_tokens` tokens sees are held.
bool is_resident(const Track& track, const TableRange& range, std::uint64_t num_tokens) {
  if (range.removed_rows != 0) return false;
  return num_rows(track, num_tokens, 0) == 0 ||
         first_held_block(track, num_tokens) >= range.first_block;
}

std::string snapshot_lengths(const Sequence& sequence) {
  if (sequence.snapshot_tokens.empty()) return "none was taken";
  return fmt::format("there are of {}", fmt::join(sequence.snapshot_tokens, ", "));
}

}  // namespace

std::optional<std::size_t> KvCache::Impl::snapshot_at(const Sequence& sequence,
                                                      std::uint64_t num_tokens) const {
  const auto& lengths = sequence.snapshot_tokens;
  const auto found = std::find(lengths.begin(), lengths.end(), num_tokens);
  if (found == lengths.end()) return std::nullopt;
  return static_cast<std::size_t>(found - lengths.begin());
}

Status KvCache::Impl::check_length(std::uint32_t slot, std::uint64_t num_tokens) const {
  const Sequence& sequence = sequences[slot];
  if (num_tokens > sequence.num_tokens) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("length {} of a sequence of {} tokens, expected at most its own",
                            num_tokens, sequence.num_tokens));
  }
  if (num_tokens == sequence.num_tokens || num_tokens == 0) return {};
  for (std::uint32_t track_index = 0; track_index < stores.size(); ++track_index) {
    const Track& track = stores[track_index].track;
    const bool is_held = is_resident(track, sequence.ranges[track_index], num_tokens);
    for (const TrackStream& part : track.streams) {
      const Stream& stream = model.groups[part.group].streams[part.stream];
      const auto refusal = [&](const std::string& why) -> Status {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("stream {} (truncate {}): length {} of a sequence of {} tokens: {}",
                                stream.name, to_string(stream.truncate), num_tokens,
                                sequence.num_tokens, why));
      };
      if (!is_held) return refusal("rows that its last token sees are no longer held");
      if (stream.truncate.kind == Truncate::Kind::kBoundary &&
          num_tokens % stream.truncate.tokens != 0) {
        return refusal(fmt::format("expected a multiple of {}", stream.truncate.tokens));
      }
      if (stream.truncate.kind == Truncate::Kind::kSnapshot && !snapshot_at(sequence, num_tokens)) {
        return refusal(
            fmt::format("expected the length of a snapshot, {}", snapshot_lengths(sequence)));
      }
    }
  }
  return {};
}

void KvCache::Impl::drop_snapshots(std::uint32_t slot, std::size_t first, std::size_t count) {
  if (count == 0) return;
  auto& lengths = sequences[slot].snapshot_tokens;
  for (std::uint32_t track = 0; track < stores.size(); ++track) {
    if (!stores[track].is_constant()) continue;
    const std::span<std::uint32_t> entries = table(track, slot).subspan(1);
    for (std::size_t i = first; i < first + count; ++i) {
      if (entries[i] != kNoBlock) release(stores[track], entries[i]);
    }
    std::copy(entries.begin() + static_cast<std::ptrdiff_t>(first + count),
              entries.begin() + static_cast<std::ptrdiff_t>(lengths.size()),
              entries.begin() + static_cast<std::ptrdiff_t>(first));
  }
  lengths.erase(lengths.begin() + static_cast<std::ptrdiff_t>(first),
                lengths.begin() + static_cast<std::ptrdiff_t>(first + count));
}

// Puts the state of an earlier length in place: the snapshot's, or zeros, which is what the streams
// of a boundary begin with.
void KvCache::Impl::restore_state(std::uint32_t track, std::uint32_t slot,
                                  std::uint64_t num_tokens) {
  TrackStore& store = stores[track];
  Sequence& sequence = sequences[slot];
  drop_back(track, slot, sequence.ranges[track].num_blocks);
  const auto snapshot = snapshot_at(sequence, num_tokens);
  if (num_tokens == 0 || !snapshot) return;
  const std::span<std::uint32_t> entries = table(track, slot);
  if (entries[1 + *snapshot] == kNoBlock) return;
  entries[0] = entries[1 + *snapshot];
  add_ref(store, entries[0]);
  sequence.ranges[track].num_blocks = 1;
}

Status KvCache::truncate(SequenceId id, std::uint64_t num_tokens) {
  Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t slot, impl.slot_of(id));
  KVARTO_CHECK_OK(impl.check_length(slot, num_tokens));
  Sequence& sequence = impl.sequences[slot];
  if (num_tokens == sequence.num_tokens) return {};
  for (std::uint32_t index = 0; index < impl.stores.size(); ++index) {
    const TrackStore& store = impl.stores[index];
    TableRange& range = sequence.ranges[index];
    if (store.is_constant()) {
      impl.restore_state(index, slot, num_tokens);
      continue;
    }
    if (num_tokens == 0) range.removed_rows = 0;
    const std::uint64_t end = end_block(store.track, num_tokens, range.removed_rows);
    const std::uint64_t present = range.first_block + range.num_blocks;
    impl.drop_back(index, slot, std::min(present - std::min(present, end), range.num_blocks));
    if (range.num_blocks == 0) range.first_block = end;
    range.is_tail_dirty =
        num_rows(store.track, num_tokens, range.removed_rows) % store.track.rows_per_block != 0;
  }
  sequence.num_tokens = num_tokens;
  const auto& lengths = sequence.snapshot_tokens;
  const auto later = std::upper_bound(lengths.begin(), lengths.end(), num_tokens);
  impl.drop_snapshots(slot, static_cast<std::size_t>(later - lengths.begin()),
                      static_cast<std::size_t>(lengths.end() - later));
  return {};
}

Status KvCache::take_snapshot(SequenceId id) {
  Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t slot, impl.slot_of(id));
  Sequence& sequence = impl.sequences[slot];
  if (impl.options.num_snapshots == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "take_snapshot: the cache was created with num_snapshots 0, expected at least 1");
  }
  auto& lengths = sequence.snapshot_tokens;
  if (const auto same = impl.snapshot_at(sequence, sequence.num_tokens)) {
    impl.drop_snapshots(slot, *same, 1);
  } else if (lengths.size() == impl.options.num_snapshots) {
    impl.drop_snapshots(slot, 0, 1);
  }
  for (std::uint32_t track = 0; track < impl.stores.size(); ++track) {
    TrackStore& store = impl.stores[track];
    if (!store.is_constant()) continue;
    const std::span<std::uint32_t> entries = impl.table(track, slot);
    const bool has_state = sequence.ranges[track].num_blocks == 1;
    entries[1 + lengths.size()] = has_state ? entries[0] : kNoBlock;
    if (has_state) impl.add_ref(store, entries[0]);
  }
  lengths.push_back(sequence.num_tokens);
  return {};
}

Result<std::optional<SequenceId>> KvCache::fork(SequenceId parent_id, std::uint64_t num_tokens) {
  Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t parent_slot, impl.slot_of(parent_id));
  KVARTO_CHECK_OK(impl.check_length(parent_slot, num_tokens));
  const std::optional<SequenceId> child_id = create_sequence();
  if (!child_id) return std::optional<SequenceId>();
  const auto slot = static_cast<std::uint32_t>(static_cast<std::uint64_t>(*child_id));
  const Sequence& parent = impl.sequences[parent_slot];
  Sequence& child = impl.sequences[slot];
  child.num_tokens = parent.num_tokens;
  child.snapshot_tokens = parent.snapshot_tokens;
  child.ranges = parent.ranges;
  for (std::uint32_t index = 0; index < impl.stores.size(); ++index) {
    TrackStore& store = impl.stores[index];
    const auto from = impl.table(index, parent_slot);
    const std::uint64_t num_snapshots = store.is_constant() ? child.snapshot_tokens.size() : 0;
    const std::uint64_t num_blocks = child.ranges[index].num_blocks;
    const std::span<std::uint32_t> to = impl.table(index, slot);
    std::copy_n(from.begin(), num_snapshots > 0 ? 1 + num_snapshots : num_blocks, to.begin());
    for (std::uint64_t i = 0; i < num_blocks; ++i) impl.add_ref(store, to[i]);
    for (std::uint64_t i = 1; i <= num_snapshots; ++i) {
      if (to[i] != kNoBlock) impl.add_ref(store, to[i]);
    }
  }
  KVARTO_CHECK(truncate(*child_id, num_tokens).has_value());
  return child_id;
}

}  // namespace kvarto
