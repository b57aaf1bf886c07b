// Decode: one query token for each sequence of a batch.

#pragma once

#include "attention/runner_state.h"

namespace kvarto {

// What one decode works on; built by the runner from a checked call.
struct DecodeWork {
  const DecodeCall* call = nullptr;
  PassShape shape;
  const KernelTable* kernels = nullptr;
  ThreadPool* pool = nullptr;
  std::span<ThreadScratch> scratch;
  AlignedFloats* parts = nullptr;
  Observer* observer = nullptr;
};

// Runs it and fills in the counts of `report`.
void run_decode(const DecodeWork& work, std::span<const RowRange> visible, AttentionReport& report);

}  // namespace kvarto
