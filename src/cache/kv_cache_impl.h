// What KvCache is made of. Its methods are spread over kv_cache*.cc by what they do.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/element_squares.h"
#include "cache/slice.h"
#include "cache/storage.h"
#include "kvarto/block_pool.h"
#include "kvarto/kv_cache.h"

namespace kvarto {

// Stands for "no block": the state of a sequence that is all zeros.
inline constexpr std::uint32_t kNoBlock = 0xFFFF'FFFF;

// One stream of one layer: an array of equal slices, one a block, so that the slices of
// consecutive block ids lie side by side.
struct SliceArray {
  std::uint32_t track = 0;
  std::uint32_t group = 0;
  std::uint32_t stream = 0;        // index into LayerGroup::streams
  std::uint32_t layer = 0;         // the layer that owns it
  std::uint64_t offset_bytes = 0;  // of block 0's slice in the track's storage
  std::uint64_t slice_bytes = 0;
  SliceShape shape;
};

// The storage, pool and block tables of one track.
struct TrackStore {
  Track track;
  BlockPool pool;
  Storage storage;
  std::vector<StreamId> slices;
  // Block tables of all sequence slots, `table_entries` each. A constant track's table is its
  // present block followed by the snapshots' blocks.
  std::vector<std::uint32_t> tables;
  std::uint64_t table_entries = 0;
  // Blocks below this id have been used before; the others still have the kernel's zeros.
  std::uint32_t first_unused = 0;

  [[nodiscard]] bool is_constant() const {
    return track.lifetime.kind == Lifetime::Kind::kConstant;
  }
};

// The rows of a stream that lives for one step, [layer of the group][sequence slot][row]. They have
// no blocks: every step writes them anew.
struct StepStore {
  std::uint32_t group = 0;
  std::uint32_t stream = 0;
  std::uint64_t bytes_per_sequence = 0;  // of one layer
  std::uint64_t total_bytes = 0;
  std::vector<std::byte> bytes;
};

// One sequence's part of a block table.
struct TableRange {
  std::uint64_t first_block = 0;  // logical index of the first entry
  std::uint64_t num_blocks = 0;
  // Rows that a policy has removed from a track of lifetime `kept`; 0 in all others.
  std::uint64_t removed_rows = 0;
  // The last block may hold rows behind this sequence's last one: it was truncated or forked.
  bool is_tail_dirty = false;
};

struct Sequence {
  bool is_alive = false;
  std::uint32_t generation = 0;
  std::uint64_t num_tokens = 0;
  std::vector<TableRange> ranges;              // one a track
  std::vector<std::uint64_t> snapshot_tokens;  // ascending, at most num_snapshots
};

// What an append does to one track, found before anything is done.
struct AppendPlan {
  std::uint64_t num_dropped = 0;  // blocks at the begin that leave
  std::uint64_t num_freed = 0;    // of these, blocks that nobody else names
  std::uint64_t num_taken = 0;    // new blocks at the end
  bool copies_tail = false;       // the last block is shared and will be written
  [[nodiscard]] std::uint64_t num_needed() const { return num_taken + (copies_tail ? 1 : 0); }
};

struct KvCache::Impl {
  ModelSpec model;
  CacheOptions options;
  const KernelTable* kernels = nullptr;  // converts and packs rows
  std::vector<Track> tracks;
  std::vector<TrackStore> stores;       // one a track
  std::vector<SliceArray> slices;       // by StreamId
  std::vector<ElementSquares> squares;  // by StreamId; empty where none are kept
  std::vector<StepStore> step_stores;
  std::vector<Sequence> sequences;  // by slot
  std::vector<std::uint32_t> free_slots;
  std::vector<AppendPlan> append_plans;  // scratch of append()
  Observer* observer = nullptr;

  // --- kv_cache_create.cc ---
  // Adds the slices of one track, each an array over all blocks, one behind the other.
  void add_slices(std::uint32_t track_index, std::uint64_t num_blocks);

  // --- kv_cache.cc: handles and blocks ---
  [[nodiscard]] Result<std::uint32_t> slot_of(SequenceId id) const;
  [[nodiscard]] SequenceId id_of(std::uint32_t slot) const;
  [[nodiscard]] Result<const SliceArray*> slice_of(StreamId id) const;
  [[nodiscard]] std::span<std::uint32_t> table(std::uint32_t track, std::uint32_t slot);
  [[nodiscard]] std::span<const std::uint32_t> table(std::uint32_t track, std::uint32_t slot) const;
  [[nodiscard]] std::byte* slice_begin(const SliceArray& slice, std::uint32_t block) const;
  // Takes a block, all zeros unless its bytes will be replaced at once. Requires: one is free.
  enum class Content : std::uint8_t { kZeros, kReplaced };
  std::uint32_t take_block(TrackStore& store, Content content);
  [[nodiscard]] std::uint32_t track_of(const TrackStore& store) const {
    return static_cast<std::uint32_t>(&store - stores.data());
  }
  void add_ref(TrackStore& store, std::uint32_t block);
  void release(TrackStore& store, std::uint32_t block);
  [[nodiscard]] bool is_shared(const TrackStore& store, std::uint32_t block) const;
  void fill_block(const TrackStore& store, std::uint32_t block, int byte);
  // Replaces a shared block of a table by an own copy.
  void make_own(TrackStore& store, std::uint32_t& entry);
  // Zeros rows from `first_row` on in a block that one sequence alone names.
  void clear_tail(const TrackStore& store, std::uint32_t block, std::uint64_t first_row);
  void drop_front(std::uint32_t track, std::uint32_t slot, std::uint64_t num_blocks);
  void drop_back(std::uint32_t track, std::uint32_t slot, std::uint64_t num_blocks);

  // --- kv_cache_append.cc ---
  [[nodiscard]] AppendPlan plan_append(std::uint32_t track, std::uint32_t slot,
                                       std::uint64_t num_tokens) const;
  void apply_append(std::uint32_t track, std::uint32_t slot, std::uint64_t num_tokens,
                    const AppendPlan& plan);

  Grant move_rows(std::uint32_t track, std::uint32_t slot, std::span<const std::uint64_t> rows);

  // --- kv_cache_truncate.cc ---
  // Why the streams of `slot` do not allow `num_tokens`; nothing if they do.
  [[nodiscard]] Status check_length(std::uint32_t slot, std::uint64_t num_tokens) const;
  [[nodiscard]] std::optional<std::size_t> snapshot_at(const Sequence& sequence,
                                                       std::uint64_t num_tokens) const;
  void drop_snapshots(std::uint32_t slot, std::size_t first, std::size_t count);
  void restore_state(std::uint32_t track, std::uint32_t slot, std::uint64_t num_tokens);

  // --- kv_cache_rows.cc ---
  // Block that holds `row` and the rows from there to the end of the block or of the sequence.
  struct RowPlace {
    std::uint32_t block = 0;
    RowRun rows;  // inside the block
  };
  [[nodiscard]] Result<RowPlace> place_of(const SliceArray& slice, std::uint32_t slot,
                                          std::uint64_t row) const;
  // K and V of a stream whose rows are both; without sequences.
  [[nodiscard]] Result<CacheView> row_view(StreamId stream) const;
};

// Rows of the first `tokens` tokens, dead ones counted, those that a policy removed not. Constant
// tracks have one, from the first token on.
[[nodiscard]] std::uint64_t num_rows(const Track& track, std::uint64_t tokens,
                                     std::uint64_t removed_rows);

// One past the logical index of the last block with one of these rows.
[[nodiscard]] std::uint64_t end_block(const Track& track, std::uint64_t tokens,
                                      std::uint64_t removed_rows);

// Logical index of the first block with a row that the last of `tokens` tokens sees.
[[nodiscard]] std::uint64_t first_held_block(const Track& track, std::uint64_t tokens);

// The stream as stored: head-sharded fields divided by the ranks.
[[nodiscard]] Stream stream_on_rank(Stream stream, std::uint32_t tensor_parallel);

}  // namespace kvarto
