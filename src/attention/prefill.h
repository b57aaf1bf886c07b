// Prefill: causal attention of many query tokens of each sequence.

#pragma once

#include "attention/runner_state.h"

namespace kvarto {

struct PrefillWork {
  const PrefillCall* call = nullptr;
  PassShape shape;
  ThreadPool* pool = nullptr;
  std::span<ThreadScratch> scratch;
};

// Runs a checked call and fills in the counts of `report`.
void run_prefill(const PrefillWork& work, AttentionReport& report);

}  // namespace kvarto
