// A KvCache for several threads, each with sequences of its own.

#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <utility>

#include "kvarto/kv_cache.h"

namespace kvarto {

// Thread-safe, as long as each sequence is written, truncated and freed by one thread at a time.
//
// What takes or gives back blocks holds the lock alone, and is O(1) a token; rows are written and
// read side by side, since no two sequences ever write one block.
class SharedKvCache {
 public:
  explicit SharedKvCache(KvCache cache) : cache_(std::move(cache)) {}

  [[nodiscard]] std::optional<SequenceId> create_sequence() {
    const std::unique_lock lock(mutex_);
    return cache_.create_sequence();
  }
  [[nodiscard]] Result<Grant> append(SequenceId sequence, std::uint64_t num_tokens) {
    const std::unique_lock lock(mutex_);
    return cache_.append(sequence, num_tokens);
  }
  [[nodiscard]] Status trim(SequenceId sequence) {
    const std::unique_lock lock(mutex_);
    return cache_.trim(sequence);
  }
  [[nodiscard]] Status truncate(SequenceId sequence, std::uint64_t num_tokens) {
    const std::unique_lock lock(mutex_);
    return cache_.truncate(sequence, num_tokens);
  }
  [[nodiscard]] Result<std::optional<SequenceId>> fork(SequenceId parent,
                                                       std::uint64_t num_tokens) {
    const std::unique_lock lock(mutex_);
    return cache_.fork(parent, num_tokens);
  }
  [[nodiscard]] Status take_snapshot(SequenceId sequence) {
    const std::unique_lock lock(mutex_);
    return cache_.take_snapshot(sequence);
  }
  [[nodiscard]] Status free_sequence(SequenceId sequence) {
    const std::unique_lock lock(mutex_);
    return cache_.free_sequence(sequence);
  }

  [[nodiscard]] Status write(SequenceId sequence, StreamId stream, std::uint64_t first_row,
                             const RowSource& source) {
    const std::shared_lock lock(mutex_);
    return cache_.write(sequence, stream, first_row, source);
  }
  [[nodiscard]] Status read(SequenceId sequence, StreamId stream, std::uint64_t first_row,
                            std::span<float> out) const {
    const std::shared_lock lock(mutex_);
    return cache_.read(sequence, stream, first_row, out);
  }
  // Calls `use` with the cache while nobody changes it: for attention over views. `use` may call
  // const methods only.
  template <typename Use>
  auto use(Use&& use) const {
    const std::shared_lock lock(mutex_);
    return std::forward<Use>(use)(cache_);
  }

 private:
  mutable std::shared_mutex mutex_;
  KvCache cache_;
};

}  // namespace kvarto
