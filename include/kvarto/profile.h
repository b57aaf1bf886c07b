// What a cache really did: prefill and a decode loop over a real cache, measured in size, layout,
// lifetime, access and latency, each beside the plan.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/attention.h"
#include "kvarto/kv_cache.h"
#include "kvarto/layer_types.h"
#include "kvarto/model_spec.h"
#include "kvarto/observe.h"
#include "kvarto/result.h"

namespace kvarto {

// --- Recorder: for a program that runs its own loop
// -----------------------------------------------

// Blocks of one track, all of them counted, those still in use included. Ages and gaps are in
// steps.
struct TrackLife {
  Track track;
  std::uint64_t births = 0;
  std::uint64_t deaths = 0;
  std::uint64_t resident = 0;    // still in use
  std::uint64_t reused = 0;      // births of a block that had been freed before
  std::uint64_t never_read = 0;  // by a decode, of all births; reads of a prefill are not counted
  double mean_age = 0;           // from birth to death, or to now
  std::uint64_t max_age = 0;
  double mean_idle = 0;  // from the last read (or birth) to death, or to now
  std::uint64_t max_idle = 0;
  // Steps between two reads of a block -> how often.
  std::map<std::uint64_t, std::uint64_t> reuse_gaps;
  // Blocks in use at the end of each step; index 0 is what was before the first step.
  std::vector<std::uint64_t> timeline;
};

// What one step did.
struct StepCounts {
  std::uint64_t rows_read = 0;  // of K, over all layers; the V rows are as many
  std::uint64_t k_bytes = 0;    // read
  std::uint64_t v_bytes = 0;
  std::uint64_t index_rows = 0;  // keys of an indexer, over all layers
  std::uint64_t index_bytes = 0;
  std::uint64_t blocks_taken = 0;
  std::uint64_t blocks_freed = 0;
  double plan_s = 0;
  double pass_s = 0;
  double merge_s = 0;
};

// Counts the events of one cache and of the runner that reads it. Not thread-safe; one owner. The
// address must not change while it observes.
class CacheRecorder : public Observer {
 public:
  // Reads the cache's tracks and streams; does not register itself.
  explicit CacheRecorder(const KvCache& cache);
  ~CacheRecorder() override;
  CacheRecorder(const CacheRecorder&) = delete;
  CacheRecorder& operator=(const CacheRecorder&) = delete;

  // Ends a step and begins the next one; returns what the ended one did.
  StepCounts next_step();
  // Lifetimes up to now. O(all blocks).
  [[nodiscard]] std::vector<TrackLife> lifetimes() const;

  void block_taken(std::uint32_t track, std::uint32_t block) override;
  void block_freed(std::uint32_t track, std::uint32_t block) override;
  void decoded(const CacheView& view, const DecodeEvent& event) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// --- Profile ------------------------------------------------------------------------------------

// How far one run is: of the tokens of its prefill, or of its decode steps.
struct ProfileProgress {
  std::string_view phase;  // "prefill", "decode"
  std::uint64_t done = 0;
  std::uint64_t all = 0;
};

struct ProfileRequest {
  ModelSpec model;                      // types set
  CacheTypes types;                     // that were set; for the planner
  std::vector<LayerTypes> layer_types;  // likewise, of some layers alone
  std::uint64_t context = 0;            // tokens of each sequence at the end
  std::uint64_t num_sequences = 1;
  std::uint64_t num_steps = 0;  // decode steps, of the context; 0 = default_steps()
  std::uint64_t block_size = kDefaultBlockSize;
  std::uint64_t micro_batch = kDefaultMicroBatch;
  std::uint32_t num_threads = 1;
  Layout layout = Layout::kHardware;
  Arith arith = Arith::kAuto;
  std::uint32_t query_bits = 16;  // AttentionOptions::query_bits
  bool has_all_layers = false;    // all layers of a group; else its first one
  // Looked at before every chunk of the prefill and every step; the run then ends as partial.
  const std::atomic<bool>* is_stopping = nullptr;
  // Called before every chunk of the prefill and every step, outside of what is timed.
  std::function<void(const ProfileProgress&)> on_progress;
};

// 128, or half of a context below 256; at least 1.
[[nodiscard]] std::uint64_t default_steps(std::uint64_t context);

struct StreamSize {
  std::string name;
  std::string codec;
  // Rows that the next step can see, at the final context.
  std::uint64_t predicted_bytes = 0;
  std::uint64_t measured_bytes = 0;
  // The blocks that hold them.
  std::uint64_t predicted_held_bytes = 0;
  std::uint64_t held_bytes = 0;
};

struct SizeReport {
  std::vector<StreamSize> streams;
  std::uint64_t predicted_allocated_bytes = 0;  // plan of engine `kvarto`
  std::uint64_t allocated_bytes = 0;            // storage and bookkeeping
  std::uint64_t predicted_metadata_bytes = 0;
  std::uint64_t metadata_bytes = 0;
  std::uint64_t storage_bytes = 0;
  std::uint64_t resident_bytes = 0;  // pages of the storage that the kernel has given
  double fragmentation = 0;          // share of the held blocks' bytes that no visible row has
};

struct StreamLayoutReport {
  std::string name;
  std::string axes;                 // "[head][row / 16][element][row % 16]"
  std::uint64_t slice_bytes = 0;    // of one block in one layer
  std::uint64_t padding_bytes = 0;  // of these
  double line_utilisation = 0;      // bytes read over the bytes of the cache lines they lie in
  // Rows of unbroken memory in one step -> how many such runs, for one head (all heads where a row
  // holds them side by side).
  std::map<std::uint64_t, std::uint64_t> run_rows;
  // Bytes from the end of a run to the begin of the next, by powers of two (negative = backwards).
  std::map<std::int64_t, std::uint64_t> jumps;
};

struct LayoutReport {
  std::string asked;
  std::uint64_t block_size = 0;  // tokens
  std::uint64_t block_bytes = 0;
  std::uint64_t huge_page_bytes = 0;
  bool is_huge_page_advised = false;
  std::vector<StreamLayoutReport> streams;
};

struct StreamAccess {
  std::string name;
  std::uint64_t predicted_bytes = 0;  // of the last step
  std::uint64_t measured_bytes = 0;
};

struct CounterValue {
  std::string name;
  double per_step = 0;
};

struct AccessReport {
  std::uint64_t predicted_rows = 0;  // of the last step, K rows of all layers and sequences
  std::uint64_t measured_rows = 0;
  std::vector<StreamAccess> streams;
  std::uint64_t predicted_step_bytes = 0;  // StepCost::read_bytes
  std::uint64_t steps_checked = 0;
  std::uint64_t steps_that_differ = 0;  // whose rows are not those predicted at their length
  double gb_per_s = 0;                  // bytes read over the median time of attention
  double machine_gb_per_s = 0;          // read stream of the same size and threads
  std::vector<CounterValue> counters;
  std::string counters_note;  // why there are none
};

struct LatencySummary {
  std::uint64_t steps = 0;
  double min_us = 0, median_us = 0, mean_us = 0, p90_us = 0, p99_us = 0, max_us = 0;
  double stddev_us = 0;
  double stddev_low_us = 0, stddev_high_us = 0;  // 95 %, bootstrap
};
// Percentiles are values that were measured (nearest rank). Zeros for no seconds.
[[nodiscard]] LatencySummary summarise_latency(std::vector<double> seconds);

struct StepRecord {
  std::uint64_t tokens = 0;  // of each sequence, this step's included
  double begin_s = 0;        // since the first step began
  double append_s = 0;       // blocks reserved
  double write_s = 0;        // rows packed
  double attention_s = 0;    // index, plan, pass, merge, and the calls around them
  double index_s = 0;        // scores and selection of an indexer of these layers
  double total_s = 0;
  StepCounts counts;
  std::uint64_t minor_faults = 0;
  std::uint64_t major_faults = 0;
  std::uint64_t switches = 0;  // involuntary
};

struct PhaseTime {
  std::string name;
  double median_us = 0;
  double share = 0;  // of the measured steps' time
};

struct SlowStep {
  std::uint64_t tokens = 0;
  double total_us = 0;
  std::string cause;
};

struct LatencyReport {
  LatencySummary steps;  // without the warm-up
  LatencySummary warm_up;
  std::vector<PhaseTime> phases;
  double empty_call_us = 0;  // decode of sequences without tokens
  std::vector<SlowStep> slowest;
};

struct PrefillReport {
  std::uint64_t tokens = 0;  // appended and written, each sequence
  double append_s = 0;
  double write_s = 0;
  std::uint64_t attended_tokens = 0;  // the last ones, for which attention ran
  double attention_s = 0;
};

// A statement that the run checked.
struct Verified {
  std::string statement;
  bool is_met = false;
  std::string detail;  // figures
};

struct ProfileRun {
  std::string architecture;
  std::string type;                   // "bf16", or "k/v" types where they differ
  std::vector<std::uint32_t> layers;  // that ran
  std::uint32_t group_layers = 0;     // layers of the model that are like them
  // The layer whose selection of rows they reuse. It is in the cache with them, and its indexer
  // runs; neither its bytes nor its time are theirs.
  std::optional<std::uint32_t> selection_layer;
  std::uint64_t context = 0;
  std::uint64_t batch = 0;
  std::string kernel, isa, arith;  // what ran
  std::uint32_t query_bits = 0;    // of integer arithmetic, else 0
  std::uint32_t num_threads = 0;
  bool is_partial = false;
  std::uint64_t warm_up_steps = 0;
  SizeReport size;
  LayoutReport layout;
  std::vector<TrackLife> lifetime;
  AccessReport access;
  LatencyReport latency;
  PrefillReport prefill;
  std::vector<StepRecord> steps;  // all, warm-up first
  std::vector<Verified> verified;

  [[nodiscard]] bool is_all_met() const;
};

// Whether the layers of a group of `model` can run now: K and V of the same heads, or rows that are
// both, born with their tokens, read in full, by a window or chunk, by an indexer of their own or
// by the selection of a layer that has one. Errors: kUnsupported, saying why.
[[nodiscard]] Status check_runnable(const ModelSpec& model, const LayerGroup& group);

// Runs every layer group that caches something; of groups that differ in the layer alone whose
// selection they reuse the first one, unless all layers are asked for. Errors: kUnsupported for a
// group that cannot run yet; kInvalidArgument for counts that cannot be; kOutOfMemory, before
// anything is allocated, with the bytes asked for and those available.
[[nodiscard]] Result<std::vector<ProfileRun>> profile(const ProfileRequest& request);

}  // namespace kvarto
