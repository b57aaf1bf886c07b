// Measurements of attention whose rows an indexer picks (selection.h): the indexer, the attention
// over the rows picked, and the same attention over all rows, in turn in one process.

#pragma once

#include <cstdint>
#include <string_view>

#include "kvarto/attention.h"
#include "kvarto/measure.h"
#include "kvarto/model_spec.h"
#include "kvarto/result.h"

namespace kvarto {

struct SparseBench {
  // Types in force. Its first layer is measured: a stream that is read by top-k, whose rows are K
  // and V at once, and index keys of its own.
  ModelSpec model;
  std::uint64_t kv_len = 4096;  // tokens
  std::uint64_t q_len = 1;      // tokens; more than 1: a prefill of the last ones
  std::uint32_t batch = 1;
  std::uint32_t num_threads = 1;
  Layout layout = Layout::kHardware;
  std::uint64_t block_size = 16;                 // tokens; 0: each sequence in one block
  Arith arith = Arith::kAuto;                    // f16 and int8: index scores in int16
  BenchContent content = BenchContent::kNormal;  // of rows and index keys
  double seconds = 1;
};

// What one stream's rows cost in one call.
struct SparseReads {
  std::uint64_t rows = 0;   // that queries see or select, for each query anew
  std::uint64_t bytes = 0;  // of them
  // Read, each reading counted: 16 neighbouring queries of a prefill share the index keys that the
  // last of them sees; of the rows of the attention every query reads its own.
  std::uint64_t rows_read = 0;
  std::uint64_t bytes_read = 0;
  double flop = 0;
};

struct SparseReport {
  std::string_view kernel;  // of the attention, as it ran
  std::string_view isa;
  std::string_view layout;
  std::string_view arith;
  std::string_view index_isa;
  std::string_view index_arith;
  Timing time;  // indexer and attention
  Timing index_time;
  Timing attention_time;
  Timing dense_time;        // attention over all rows; runs 0 where it was not measured
  SparseReads index_reads;  // index keys
  SparseReads reads;        // rows of the attention
  // What the plan's stream functions give for the same call, rows and bytes.
  SparseReads planned_index;
  SparseReads planned;
  // Bytes that the call must read at least once: all index keys, and the rows that any query
  // selects. Of a decode those that the plan reads.
  std::uint64_t unique_kv_bytes = 0;
  double machine_gb_per_s = 0;     // read stream over stream_bytes, same threads
  std::uint64_t stream_bytes = 0;  // unique_kv_bytes, within 1 MiB and what the cache has
  double machine_gflop_per_s = 0;  // multiply-add loop of the attention's arithmetic
  // Share of rows that an indexer in double precision over the same cache selects too, and the
  // error of outputs against double precision over the rows that were selected.
  double same_rows = 0;
  double max_rel_error = 0;
  double error_bound = 0;  // as BenchReport::error_bound, of the attention over these rows

  // That the plan reads, each reading counted, and its arithmetic.
  [[nodiscard]] std::uint64_t planned_bytes() const {
    return planned_index.bytes_read + planned.bytes_read;
  }
  [[nodiscard]] double planned_flop() const { return planned_index.flop + planned.flop; }
  // What no schedule goes below at the machine's limits: the longer of reading every byte once and
  // the plan's arithmetic.
  [[nodiscard]] double floor_us() const {
    const double read = static_cast<double>(unique_kv_bytes) / machine_gb_per_s * 1e-3;
    const double compute = planned_flop() / machine_gflop_per_s * 1e-3;
    return read > compute ? read : compute;
  }
};

// Errors: kInvalidArgument for models and shapes that cannot be measured; kUnsupported for codecs
// and arithmetic without a kernel; kOutOfMemory.
[[nodiscard]] Result<SparseReport> measure_sparse(const SparseBench& bench);

}  // namespace kvarto
