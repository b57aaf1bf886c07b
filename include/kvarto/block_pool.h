// Reference-counted blocks of one track: which are free, and in which order they are used again.
//
// The pool holds no cached bytes; those lie in the storage of KvCache, which a block id indexes.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvarto/result.h"

namespace kvarto {

// Index of a block in its pool: 0 <= value < num_blocks().
enum class BlockId : std::uint32_t {};

// Not thread-safe; one owner.
//
// Invariants:
// 1. Every block is either free (ref_count 0, in the free queue exactly once) or in use
//    (ref_count >= 1, not in the queue).
// 2. The free queue is ordered by time of release, oldest first; blocks never used come before all
//    others, in ascending order.
// 3. num_free() is the length of the queue.
// 4. A call that reports an error or "no block" has changed nothing.
//
// Every operation is O(1). Bookkeeping is 8 bytes a block: a 4-byte count and a 4-byte link.
class BlockPool {
 public:
  // Ids are 32 bits wide and the largest value ends the queue.
  static constexpr std::uint64_t kMaxBlocks = 0xFFFF'FFFF;

  // Creates a pool with all blocks free. Errors: kInvalidArgument above kMaxBlocks.
  [[nodiscard]] static Result<BlockPool> create(std::uint64_t num_blocks);

  // Takes the block that has been free longest and sets its ref_count to 1; nullopt if none is
  // free.
  [[nodiscard]] std::optional<BlockId> allocate();

  // Adds one reference. Errors: kInvalidArgument for an id out of range, a free block, or a count
  // that would leave 32 bits.
  [[nodiscard]] Status add_ref(BlockId block);

  // Drops one reference; at zero the block goes to the end of the free queue, so that its contents
  // stay untouched for as long as possible. Returns the references that remain. Errors:
  // kInvalidArgument for an id out of range and for a block that is free already.
  [[nodiscard]] Result<std::uint32_t> release(BlockId block);

  // References to `block`; 0 for a free block and for an id out of range.
  [[nodiscard]] std::uint32_t ref_count(BlockId block) const;

  [[nodiscard]] std::uint64_t num_blocks() const { return ref_counts_.size(); }
  [[nodiscard]] std::uint64_t num_free() const { return num_free_; }
  [[nodiscard]] std::uint64_t num_in_use() const { return num_blocks() - num_free_; }

  // Bytes of bookkeeping as allocated, this object itself not counted.
  [[nodiscard]] std::uint64_t metadata_bytes() const;

  // Walks the queue and checks invariants 1 and 3. O(num_blocks). Errors: kCorruptData naming the
  // first block that breaks one.
  [[nodiscard]] Status verify() const;

 private:
  static constexpr std::uint32_t kEndOfQueue = 0xFFFF'FFFF;

  explicit BlockPool(std::uint32_t num_blocks);

  std::vector<std::uint32_t> ref_counts_;
  std::vector<std::uint32_t> next_free_;  // link of a free block; unspecified while in use
  std::uint32_t oldest_ = kEndOfQueue;
  std::uint32_t newest_ = kEndOfQueue;
  std::uint64_t num_free_ = 0;
};

}  // namespace kvarto
