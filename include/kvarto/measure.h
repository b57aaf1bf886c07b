// Measurements of attention against what this machine can do: the read stream and the multiply-add
// loop of the same process, timed in turn with the kernel.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/attention.h"
#include "kvarto/codec.h"
#include "kvarto/latent_attention.h"
#include "kvarto/layout.h"
#include "kvarto/result.h"

namespace kvarto {

// Statistics of repeated runs. A run is quiet when the process had the processor for at least 96 %
// of it; where at least three runs were, the others are left out.
struct Timing {
  double median_us = 0;
  double p99_us = 0;
  double stddev_us = 0;
  std::uint64_t runs = 0;        // that the figures are taken from
  std::uint64_t runs_total = 0;  // that were made
};
// Requires: not empty.
[[nodiscard]] Timing summarise(std::span<const double> seconds);

enum class BenchContent : std::uint8_t {
  kNormal,   // N(0, 1)
  kOutlier,  // the same with a few key channels offset by +30, +100, +300 and large queries
};
enum class BenchBaseline : std::uint8_t {
  kNone,
  kRepeat,  // K and V written out for every query head, to show what the repeat costs
};

enum class BenchBatch : std::uint8_t {
  kEqual,   // every sequence has kv_len tokens of its own
  kForked,  // every sequence has the same kv_len tokens, in the same blocks
  kRagged,  // lengths evenly spread from 1 to kv_len
};

// Rows that are K and V at once: qk_dim elements, the first v_dim of which are V; kv_heads is 1.
// With `form` set, latent attention with its up-projections is measured (latent_attention.h), else
// attention over the rows alone, with queries that are absorbed already.
struct LatentBench {
  std::optional<LatentForm> form;
  std::uint32_t nope_dim = 128;  // of a head before it is absorbed
  std::uint32_t v_dim = 128;
  Codec tail_codec = Codec::kF16;  // of the elements behind V; AttentionBench::k_codec those of V
};

struct AttentionBench {
  std::uint32_t q_heads = 32;
  std::uint32_t kv_heads = 8;
  std::uint32_t qk_dim = 128;
  std::uint32_t v_dim = 128;
  Codec k_codec = Codec::kF16;
  Codec v_codec = Codec::kF16;
  std::uint64_t kv_len = 4096;
  std::uint64_t q_len = 1;  // prefill: the last q_len tokens of each sequence are queries
  std::uint32_t batch = 1;
  BenchBatch batch_kind = BenchBatch::kEqual;  // prefill: kEqual
  std::uint32_t num_threads = 1;
  Layout layout = Layout::kHardware;
  std::uint64_t block_size = 16;  // tokens; 0: each sequence in one block
  std::uint64_t window = 0;       // tokens; 0: off
  Arith arith = Arith::kAuto;
  std::uint32_t query_bits = 16;  // AttentionOptions::query_bits
  BenchContent content = BenchContent::kNormal;
  BenchBaseline baseline = BenchBaseline::kNone;
  double seconds = 1;  // about so long is measured
  std::optional<LatentBench> latent;
};

struct BenchReport {
  std::string_view kernel;  // what really ran
  std::string_view isa;
  std::string_view layout;
  std::string_view arith;
  std::uint32_t query_bits = 0;       // of integer arithmetic, else 0
  std::uint64_t unique_kv_bytes = 0;  // bytes of cache that a call must read at least once
  std::uint64_t rows_read = 0;
  std::uint64_t bytes_read = 0;
  Timing time;
  double gb_per_s = 0;          // unique_kv_bytes over the median
  double machine_gb_per_s = 0;  // read stream over stream_bytes, same threads
  // unique_kv_bytes, but at least 1 MiB (less takes too little time to be timed) and at most what
  // the cache has; of an append the rows of all steps.
  std::uint64_t stream_bytes = 0;
  // 2 x (qk_dim + v_dim) per query head and visible row; LatentCost::flop of the form that ran.
  double gflop_per_s = 0;
  double machine_gflop_per_s = 0;  // multiply-add or dot product loop of what ran, same threads
  double max_rel_error = 0;        // max |difference| / max |reference|, double precision
  // What max_rel_error may be by the bounds of the arithmetic that ran (enum Arith), for these
  // queries and rows. Of f16 six standard deviations. Unset for append, and where up-projections
  // (LatentBench::form) are part of what was measured.
  std::optional<double> error_bound;
  std::uint64_t heads_checked = 0;  // query heads that the reference was computed for
  bool has_huge_pages = false;      // the storage lies in huge pages
  // Where LatentBench::form is set: what ran, and what both forms cost by the rule.
  std::optional<LatentForm> form;
  LatentCost naive;
  LatentCost absorbed;

  [[nodiscard]] double bandwidth_fraction() const { return gb_per_s / machine_gb_per_s; }
  // 0 for what does no arithmetic.
  [[nodiscard]] double flop_fraction() const {
    return machine_gflop_per_s > 0 ? gflop_per_s / machine_gflop_per_s : 0;
  }
};

// Builds a cache of random contents in its own storage, blocks in random order, and measures.
// Errors: kInvalidArgument for shapes that cannot be; kUnsupported for codecs without a kernel;
// kOutOfMemory.
[[nodiscard]] Result<BenchReport> measure_decode(const AttentionBench& bench);
[[nodiscard]] Result<BenchReport> measure_prefill(const AttentionBench& bench);

// One read bandwidth: `num_threads` threads share `working_set_bytes`.
struct BandwidthPoint {
  std::uint64_t working_set_bytes = 0;
  std::uint32_t num_threads = 0;
  bool wants_huge_pages = false;
  bool has_huge_pages = false;  // what the system gave
  double gb_per_s = 0;
};
// One peak: operations (a multiply-add counts two) of one thread.
struct PeakPoint {
  std::string_view name;  // "f32 fma", "f16 fma", "int8 dot"
  std::string_view isa;
  double gop_per_s = 0;
};
struct MachineReport {
  std::string_view isa;
  std::uint64_t num_cores = 0;
  std::vector<BandwidthPoint> bandwidth;
  std::vector<PeakPoint> peaks;
};
struct MachineBench {
  std::vector<std::uint64_t> working_sets_bytes;  // empty: 32 KiB to 1 GiB
  std::vector<std::uint32_t> threads;             // empty: 1 and all cores
  double seconds_per_point = 0.1;
};
// Errors: kInvalidArgument, kOutOfMemory.
[[nodiscard]] Result<MachineReport> measure_machine(const MachineBench& bench);

}  // namespace kvarto
