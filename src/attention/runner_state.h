// What an AttentionRunner keeps between calls.

#pragma once

#include <vector>

#include "attention/head_pass.h"
#include "attention/indexer.h"
#include "base/aligned_floats.h"
#include "base/thread_pool.h"
#include "kernels/dispatch.h"
#include "kvarto/attention.h"

namespace kvarto {

// Scratch of one thread.
struct ThreadScratch {
  AlignedFloats queries;  // packed
  AlignedFloats states;
  AlignedFloats scores;
  AlignedFloats slab;      // decode: rows of formats that kernels do not read
  AlignedFloats codes;     // scales and operands of integer codes
  AlignedFloats keys;      // joined tiles, or f32 slabs of prefill: tiles,
  AlignedFloats values;    // rows,
  AlignedFloats key_rows;  // and rows that become a tile
  std::vector<std::uint32_t> query_first;
  std::vector<std::uint32_t> query_end;
  std::vector<float> slopes;
  std::vector<float> distances;
  std::vector<const float*> rows;
  std::vector<std::uint64_t> out_places;  // prefill: offsets of what is needed soon
  std::vector<std::uint64_t> q_places;
  RowChunk chunks[2];
  RowChunk slab_chunk;
};

struct RunnerState {
  RunnerState(const KernelTable& table, const RunnerOptions& options)
      : kernels(&table),
        pool(options.num_threads,
             options.is_pinned ? ThreadPool::Pinning::kCores : ThreadPool::Pinning::kNone),
        scratch(options.num_threads) {}

  const KernelTable* kernels;
  ThreadPool pool;
  std::vector<ThreadScratch> scratch;
  AlignedFloats parts;  // states of work items that are merged
  IndexState index;
  Observer* observer = nullptr;
};

// The threads and kernels of a runner, for other calls of this library.
class RunnerAccess {
 public:
  [[nodiscard]] static RunnerState& state(AttentionRunner& runner) { return *runner.state_; }
};

// AttentionRunner's calls, with the kernels of `state`; tests run every
// instruction set this way.
[[nodiscard]] Result<AttentionReport> decode_with(RunnerState& state, const DecodeCall& call);
[[nodiscard]] Result<AttentionReport> prefill_with(RunnerState& state, const PrefillCall& call);
[[nodiscard]] Result<SelectReport> select_with(RunnerState& state, const SelectCall& call,
                                               Selection& selection);

}  // namespace kvarto
