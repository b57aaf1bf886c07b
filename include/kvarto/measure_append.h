// How long growing a cache takes: rows written a token, and bookkeeping alone.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvarto/kv_cache.h"
#include "kvarto/measure.h"

namespace kvarto {

struct AppendCase {
  // A model with its types set, all of which KvCache::write knows. All its layers are written.
  ModelSpec model;
  // num_sequences sequences grow together. The context must hold kv_len and the tokens of all
  // steps.
  CacheOptions options;
  std::uint64_t kv_len = 0;           // tokens that each sequence has before
  std::uint64_t tokens_per_step = 1;  // that each sequence grows by in a step
  Codec source = Codec::kF32;         // format of the rows handed in: f32, f16 or bf16
  std::uint64_t runs = 200;           // steps measured
  std::uint64_t warm_up_runs = 20;    // steps before that
};

struct AppendTiming {
  std::vector<double> step_s;        // each step: its tokens for all sequences, all layers
  std::vector<double> reserve_s;     // of which KvCache::append, without writing rows
  std::uint64_t bytes_per_step = 0;  // cached bytes that a step writes
  std::string_view isa;              // what packed the rows
  bool has_huge_pages = false;       // whether the kernel gave any
  // Largest |read back - handed in| over the largest |handed in|, of the first sequence's last
  // step.
  double max_rel_error = 0;
};

// Measures decode-like growth. Errors: kInvalidArgument for counts that do not fit the context,
// and those of KvCache::create and write.
[[nodiscard]] Result<AppendTiming> measure_append(const AppendCase& request);

// The same for K and V of one layer with the shape, type, layout and blocks of `bench`: q_len
// tokens a step onto kv_len. `unique_kv_bytes` are those that a step writes; `machine_gb_per_s` is
// the read stream over those of all steps. Errors: those of the other, and kInvalidArgument for a
// baseline or more than one thread.
[[nodiscard]] Result<BenchReport> measure_append(const AttentionBench& bench);

struct BookkeepingTiming {
  std::uint64_t num_tokens = 0;
  // Seconds from the first token to the end of each of equal steps.
  std::vector<double> elapsed_s;
  double early_ns_per_token = 0;  // median of the first tenth of the steps
  double late_ns_per_token = 0;   // median of the last tenth
  double r_squared = 0;           // of elapsed time over tokens, a straight line fitted
  double metadata_bytes_per_block = 0;
};

// Grows one sequence to `num_tokens` tokens, one at a time, without writing rows. Errors: as
// KvCache::create.
[[nodiscard]] Result<BookkeepingTiming> measure_bookkeeping(const ModelSpec& model,
                                                            std::uint64_t num_tokens,
                                                            std::uint64_t block_size);

}  // namespace kvarto
