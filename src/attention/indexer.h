// Index scores of a decode step or a prefill, and the rows that they select.

#pragma once

#include "attention/index_keys.h"
#include "attention/top_k.h"
#include "base/thread_pool.h"
#include "kvarto/selection.h"

namespace kvarto {

// Consecutive queries of one sequence that share a reading of its keys; more would not make filling
// a slab any cheaper.
inline constexpr std::uint32_t kIndexQueriesPerReading = 16;

// What the indexer keeps between calls.
struct IndexState {
  struct Thread {
    KeySlab slab;
    TopKScratch top_k;
  };
  std::vector<Thread> threads;
  AlignedFloats queries;  // packed
  AlignedFloats weights;
  AlignedFloats scores;
};

// Errors: as AttentionRunner::select().
[[nodiscard]] Result<SelectReport> run_select(const SelectCall& call, const KernelTable& kernels,
                                              ThreadPool& pool, IndexState& state,
                                              Selection& selection);

}  // namespace kvarto
