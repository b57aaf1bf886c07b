#include "kvarto/block_pool.h"

#include <fmt/format.h>

namespace kvarto {

Result<BlockPool> BlockPool::create(std::uint64_t num_blocks) {
  if (num_blocks > kMaxBlocks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("block pool: {} blocks, expected at most {}", num_blocks, kMaxBlocks));
  }
  return BlockPool(static_cast<std::uint32_t>(num_blocks));
}

BlockPool::BlockPool(std::uint32_t num_blocks)
    : ref_counts_(num_blocks, 0), next_free_(num_blocks), num_free_(num_blocks) {
  if (num_blocks == 0) return;
  for (std::uint32_t i = 0; i + 1 < num_blocks; ++i) next_free_[i] = i + 1;
  next_free_[num_blocks - 1] = kEndOfQueue;
  oldest_ = 0;
  newest_ = num_blocks - 1;
}

std::optional<BlockId> BlockPool::allocate() {
  if (num_free_ == 0) return std::nullopt;
  const std::uint32_t block = oldest_;
  oldest_ = next_free_[block];
  if (oldest_ == kEndOfQueue) newest_ = kEndOfQueue;
  ref_counts_[block] = 1;
  --num_free_;
  return BlockId{block};
}

Status BlockPool::add_ref(BlockId block) {
  const auto index = static_cast<std::uint32_t>(block);
  const std::uint32_t count = ref_count(block);
  if (count == 0 || count == 0xFFFF'FFFF) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("block pool: add_ref of block {} with {} references, expected a block "
                            "in use below {}",
                            index, count, num_blocks()));
  }
  ++ref_counts_[index];
  return {};
}

Result<std::uint32_t> BlockPool::release(BlockId block) {
  const auto index = static_cast<std::uint32_t>(block);
  if (ref_count(block) == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("block pool: release of block {}, which is not in use, expected a "
                            "block in use below {}",
                            index, num_blocks()));
  }
  if (--ref_counts_[index] > 0) return ref_counts_[index];
  next_free_[index] = kEndOfQueue;
  if (newest_ == kEndOfQueue) {
    oldest_ = index;
  } else {
    next_free_[newest_] = index;
  }
  newest_ = index;
  ++num_free_;
  return 0u;
}

std::uint32_t BlockPool::ref_count(BlockId block) const {
  const auto index = static_cast<std::uint32_t>(block);
  return index < ref_counts_.size() ? ref_counts_[index] : 0;
}

std::uint64_t BlockPool::metadata_bytes() const {
  return (ref_counts_.capacity() + next_free_.capacity()) * sizeof(std::uint32_t);
}

Status BlockPool::verify() const {
  std::vector<bool> is_queued(ref_counts_.size(), false);
  std::uint64_t length = 0;
  for (std::uint32_t block = oldest_; block != kEndOfQueue; block = next_free_[block]) {
    if (block >= ref_counts_.size() || is_queued[block] || ref_counts_[block] != 0) {
      return fail(ErrorCode::kCorruptData,
                  fmt::format("block pool: block {} in the free queue, expected a free block that "
                              "is there once",
                              block));
    }
    is_queued[block] = true;
    ++length;
  }
  if (length != num_free_) {
    return fail(
        ErrorCode::kCorruptData,
        fmt::format("block pool: {} blocks in the free queue, expected {}", length, num_free_));
  }
  for (std::size_t block = 0; block < ref_counts_.size(); ++block) {
    if (ref_counts_[block] == 0 && !is_queued[block]) {
      return fail(ErrorCode::kCorruptData,
                  fmt::format("block pool: block {} is free, expected it in the queue", block));
    }
  }
  return {};
}

}  // namespace kvarto
