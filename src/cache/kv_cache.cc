// Handles, blocks, accounting.

#include "kvarto/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "cache/kv_cache_impl.h"
#include "kernels/dispatch.h"

namespace kvarto {

std::uint64_t num_rows(const Track& track, std::uint64_t tokens, std::uint64_t removed_rows) {
  if (track.lifetime.kind == Lifetime::Kind::kConstant) return tokens == 0 ? 0 : 1;
  return track.born_rows(tokens) - removed_rows;
}

std::uint64_t end_block(const Track& track, std::uint64_t tokens, std::uint64_t removed_rows) {
  return ceil_div(num_rows(track, tokens, removed_rows), track.rows_per_block);
}

std::uint64_t first_held_block(const Track& track, std::uint64_t tokens) {
  switch (track.lifetime.kind) {
    case Lifetime::Kind::kWindow:
    case Lifetime::Kind::kChunk:
    case Lifetime::Kind::kTtl:
      return end_block(track, tokens, 0) - resident_blocks(track, tokens);
    default:
      return 0;
  }
}

// --- Blocks -----------------------------------------------------------------------------------

std::span<std::uint32_t> KvCache::Impl::table(std::uint32_t track, std::uint32_t slot) {
  TrackStore& store = stores[track];
  return std::span(store.tables).subspan(slot * store.table_entries, store.table_entries);
}

std::span<const std::uint32_t> KvCache::Impl::table(std::uint32_t track, std::uint32_t slot) const {
  const TrackStore& store = stores[track];
  return std::span(store.tables).subspan(slot * store.table_entries, store.table_entries);
}

std::byte* KvCache::Impl::slice_begin(const SliceArray& slice, std::uint32_t block) const {
  return stores[slice.track].storage.begin() + slice.offset_bytes + block * slice.slice_bytes;
}

void KvCache::Impl::fill_block(const TrackStore& store, std::uint32_t block, int byte) {
  for (const StreamId id : store.slices) {
    const SliceArray& slice = slices[static_cast<std::uint32_t>(id)];
    std::memset(slice_begin(slice, block), byte, slice.slice_bytes);
  }
}

std::uint32_t KvCache::Impl::take_block(TrackStore& store, Content content) {
  const std::optional<BlockId> taken = store.pool.allocate();
  KVARTO_CHECK(taken.has_value());
  const auto block = static_cast<std::uint32_t>(*taken);
  const bool is_unused = block >= store.first_unused;
  if (is_unused) store.first_unused = block + 1;
  if (!is_unused && content == Content::kZeros) fill_block(store, block, 0);
  if (observer != nullptr) observer->block_taken(track_of(store), block);
  return block;
}

void KvCache::Impl::add_ref(TrackStore& store, std::uint32_t block) {
  KVARTO_CHECK(store.pool.add_ref(BlockId{block}).has_value());
}

void KvCache::Impl::release(TrackStore& store, std::uint32_t block) {
  const Result<std::uint32_t> remaining = store.pool.release(BlockId{block});
  KVARTO_CHECK(remaining.has_value());
  if (*remaining != 0) return;
  if (options.poisons_freed_blocks.value_or(false)) fill_block(store, block, 0xFF);
  if (observer != nullptr) observer->block_freed(track_of(store), block);
}

bool KvCache::Impl::is_shared(const TrackStore& store, std::uint32_t block) const {
  return store.pool.ref_count(BlockId{block}) > 1;
}

void KvCache::Impl::make_own(TrackStore& store, std::uint32_t& entry) {
  const std::uint32_t copy = take_block(store, Content::kReplaced);
  for (const StreamId id : store.slices) {
    const SliceArray& slice = slices[static_cast<std::uint32_t>(id)];
    std::memcpy(slice_begin(slice, copy), slice_begin(slice, entry), slice.slice_bytes);
  }
  release(store, std::exchange(entry, copy));
}

void KvCache::Impl::clear_tail(const TrackStore& store, std::uint32_t block,
                               std::uint64_t first_row) {
  const std::uint64_t rows = store.track.rows_per_block;
  if (first_row >= rows) return;
  for (const StreamId id : store.slices) {
    const SliceArray& slice = slices[static_cast<std::uint32_t>(id)];
    clear_rows(slice.shape, slice_begin(slice, block), {first_row, rows - first_row});
  }
}

void KvCache::Impl::drop_front(std::uint32_t track, std::uint32_t slot, std::uint64_t num_blocks) {
  if (num_blocks == 0) return;
  TableRange& range = sequences[slot].ranges[track];
  const std::span<std::uint32_t> entries = table(track, slot);
  for (std::uint64_t i = 0; i < num_blocks; ++i) release(stores[track], entries[i]);
  // A window's table is short, and moves once a block.
  std::copy(entries.begin() + static_cast<std::ptrdiff_t>(num_blocks),
            entries.begin() + static_cast<std::ptrdiff_t>(range.num_blocks), entries.begin());
  range.first_block += num_blocks;
  range.num_blocks -= num_blocks;
}

void KvCache::Impl::drop_back(std::uint32_t track, std::uint32_t slot, std::uint64_t num_blocks) {
  TableRange& range = sequences[slot].ranges[track];
  const std::span<std::uint32_t> entries = table(track, slot);
  for (std::uint64_t i = 0; i < num_blocks; ++i) {
    release(stores[track], entries[--range.num_blocks]);
  }
}

// --- Handles ----------------------------------------------------------------------------------

Result<std::uint32_t> KvCache::Impl::slot_of(SequenceId id) const {
  const auto value = static_cast<std::uint64_t>(id);
  const auto slot = static_cast<std::uint32_t>(value);
  const auto generation = static_cast<std::uint32_t>(value >> 32);
  if (slot >= sequences.size() || !sequences[slot].is_alive ||
      sequences[slot].generation != generation) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("sequence {:#x}: not alive in this cache, expected an id of "
                            "create_sequence or fork that was not freed",
                            value));
  }
  return slot;
}

SequenceId KvCache::Impl::id_of(std::uint32_t slot) const {
  return SequenceId{std::uint64_t{sequences[slot].generation} << 32 | slot};
}

Result<const SliceArray*> KvCache::Impl::slice_of(StreamId id) const {
  const auto index = static_cast<std::uint32_t>(id);
  if (index >= slices.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {}: expected an id below {}", index, slices.size()));
  }
  return &slices[index];
}

KvCache::KvCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;
KvCache::~KvCache() = default;

std::optional<SequenceId> KvCache::create_sequence() {
  Impl& impl = *impl_;
  if (impl.free_slots.empty()) return std::nullopt;
  const std::uint32_t slot = impl.free_slots.back();
  impl.free_slots.pop_back();
  Sequence& sequence = impl.sequences[slot];
  sequence.is_alive = true;
  ++sequence.generation;
  sequence.num_tokens = 0;
  std::fill(sequence.ranges.begin(), sequence.ranges.end(), TableRange{});
  return impl.id_of(slot);
}

Status KvCache::free_sequence(SequenceId id) {
  Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t slot, impl.slot_of(id));
  Sequence& sequence = impl.sequences[slot];
  impl.drop_snapshots(slot, 0, sequence.snapshot_tokens.size());
  for (std::uint32_t track = 0; track < impl.stores.size(); ++track) {
    impl.drop_back(track, slot, sequence.ranges[track].num_blocks);
  }
  sequence.is_alive = false;
  impl.free_slots.push_back(slot);
  return {};
}

Result<std::uint64_t> KvCache::num_tokens(SequenceId id) const {
  KVARTO_TRY(const std::uint32_t slot, impl_->slot_of(id));
  return impl_->sequences[slot].num_tokens;
}

Result<std::vector<std::uint64_t>> KvCache::num_blocks(SequenceId id) const {
  KVARTO_TRY(const std::uint32_t slot, impl_->slot_of(id));
  std::vector<std::uint64_t> blocks;
  for (const TableRange& range : impl_->sequences[slot].ranges) blocks.push_back(range.num_blocks);
  return blocks;
}

// --- Accounting -------------------------------------------------------------------------------

const ModelSpec& KvCache::model() const { return impl_->model; }
const CacheOptions& KvCache::options() const { return impl_->options; }
const std::vector<Track>& KvCache::tracks() const { return impl_->tracks; }
std::string_view KvCache::isa() const { return isa_name(impl_->kernels->isa); }
void KvCache::set_observer(Observer* observer) { impl_->observer = observer; }
std::uint64_t KvCache::share_unit() const { return share_unit_tokens(impl_->tracks); }

namespace {

std::uint64_t metadata_bytes(const TrackStore& store) {
  return store.pool.metadata_bytes() + store.tables.capacity() * sizeof(std::uint32_t);
}

}  // namespace

std::uint64_t KvCache::allocated_bytes() const {
  std::uint64_t bytes = 0;
  for (const TrackStore& store : impl_->stores) {
    bytes += store.storage.size_bytes() + metadata_bytes(store);
  }
  for (const StepStore& store : impl_->step_stores) bytes += store.bytes.capacity();
  for (const ElementSquares& squares : impl_->squares) bytes += squares.size_bytes();
  return bytes;
}

std::vector<TrackUsage> KvCache::usage() const {
  std::vector<TrackUsage> usage;
  for (const TrackStore& store : impl_->stores) {
    const Residency residency = residency_of(store.storage);
    std::uint64_t squares = 0;
    for (const StreamId id : store.slices) {
      squares += impl_->squares[static_cast<std::uint32_t>(id)].size_bytes();
    }
    usage.push_back({.track = store.track,
                     .num_blocks = store.pool.num_blocks(),
                     .num_free = store.pool.num_free(),
                     .storage_bytes = store.storage.size_bytes(),
                     .metadata_bytes = metadata_bytes(store) + squares,
                     .resident_bytes = residency.resident_bytes,
                     .huge_page_bytes = residency.huge_page_bytes,
                     .is_huge_page_advised = store.storage.is_huge_page_advised()});
  }
  return usage;
}

Status KvCache::verify() const {
  const Impl& impl = *impl_;
  for (std::uint32_t track = 0; track < impl.stores.size(); ++track) {
    const TrackStore& store = impl.stores[track];
    KVARTO_CHECK_OK(store.pool.verify());
    std::vector<std::uint32_t> named(store.pool.num_blocks(), 0);
    for (std::uint32_t slot = 0; slot < impl.sequences.size(); ++slot) {
      const Sequence& sequence = impl.sequences[slot];
      if (!sequence.is_alive) continue;
      const TableRange& range = sequence.ranges[track];
      const auto entries = impl.table(track, slot);
      for (std::uint64_t i = 0; i < range.num_blocks; ++i) ++named[entries[i]];
      if (store.is_constant()) {
        for (std::size_t i = 1; i <= sequence.snapshot_tokens.size(); ++i) {
          if (entries[i] != kNoBlock) ++named[entries[i]];
        }
      } else if (range.first_block + range.num_blocks !=
                 end_block(store.track, sequence.num_tokens, range.removed_rows)) {
        return fail(ErrorCode::kCorruptData,
                    fmt::format("track {}, sequence of {} tokens: blocks [{}, {}), expected end {}",
                                track, sequence.num_tokens, range.first_block,
                                range.first_block + range.num_blocks,
                                end_block(store.track, sequence.num_tokens, range.removed_rows)));
      }
    }
    for (std::uint32_t block = 0; block < named.size(); ++block) {
      if (named[block] != store.pool.ref_count(BlockId{block})) {
        return fail(ErrorCode::kCorruptData,
                    fmt::format("track {}, block {}: {} references, expected {}", track, block,
                                store.pool.ref_count(BlockId{block}), named[block]));
      }
    }
  }
  return {};
}

}  // namespace kvarto
