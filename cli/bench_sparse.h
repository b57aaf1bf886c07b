// kvarto bench decode|prefill of attention whose rows an indexer picks.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvarto/plan.h"
#include "kvarto/result.h"
#include "output.h"

namespace kvarto::cli {

struct SparseAsked {
  std::string architecture;
  WhatIfDefaults shape;
  std::optional<std::uint64_t> q_len;  // unset: one query token a sequence
  std::uint64_t batch = 1;
  std::vector<std::string> types, lengths, layouts, block_sizes, threads;
  std::string arithmetic = "auto";
  std::string seconds = "1";
  bool is_json = false;
};

// Errors: kInvalidArgument for words that are none and shapes that cannot be measured.
[[nodiscard]] Status run_sparse_bench(const SparseAsked& asked, Output& out);

}  // namespace kvarto::cli
