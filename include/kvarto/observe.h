// What a cache and a runner tell an observer while they work. Without one, a call costs a test of
// a null pointer. CacheRecorder (profile.h) turns the events into lifetimes and counts.

#pragma once

#include <cstdint>
#include <span>

#include "kvarto/cache_view.h"

namespace kvarto {

// Rows of one sequence of a view that one work item of a decode step read.
struct ReadRun {
  std::uint32_t sequence = 0;  // index into CacheView::sequences; its block table was read
  std::uint64_t first_row = 0;
  std::uint64_t num_rows = 0;
};

// One decode of one layer.
struct DecodeEvent {
  std::span<const ReadRun> runs;
  double plan_s = 0;   // read plan and split plan
  double pass_s = 0;   // scores and accumulation
  double merge_s = 0;  // partial results joined
};

// Called on the thread that makes the observed call, inside it; must not call back into the cache
// or the runner. Must outlive its use there.
class Observer {
 public:
  virtual ~Observer() = default;
  // A block left its pool, or came back to it. `track` is its index in KvCache::tracks().
  virtual void block_taken(std::uint32_t /*track*/, std::uint32_t /*block*/) {}
  virtual void block_freed(std::uint32_t /*track*/, std::uint32_t /*block*/) {}
  virtual void decoded(const CacheView& /*view*/, const DecodeEvent& /*event*/) {}
};

}  // namespace kvarto
