// The planner: what a model's cache costs, byte by byte and cause by cause. Pure arithmetic.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/hardware_spec.h"
#include "kvarto/model_spec.h"
#include "kvarto/result.h"

namespace kvarto {

// Why a byte is there. The names of the JSON output are in cause_name().
enum class Cause : std::uint8_t {
  kPayload,
  kScales,
  kPadding,
  kBlockRounding,
  kCellPadding,
  kWindowSlack,
  kPageUnification,
  kLayerGrouping,
  kIndexer,
  kState,
  kSnapshots,
  kReplication,
  kDraft,
  kSpare,
  kMetadata,
  kMask,
  kWorkspace,
};
[[nodiscard]] std::string_view cause_name(Cause cause);

// One line of the ledger: bytes of one cause in one stream, over `layers` layers and all sequences.
struct LedgerEntry {
  Cause cause{};
  std::string stream;
  std::uint32_t layers = 0;
  std::uint64_t bytes = 0;
};

// What is planned. The engines' own options have the meaning of the engine's flag of that name.
struct PlanRequest {
  std::uint64_t context = 0;        // tokens a sequence; 0 = the smaller of the model's and 32,768
  std::uint64_t num_sequences = 1;
  CacheTypes types;
  std::uint32_t tensor_parallel = 1;
  std::uint32_t context_parallel = 1;
  std::uint64_t block_size = 0;     // tokens; 0 = the engine's default
  std::uint64_t micro_batch = 0;    // tokens appended at once; 0 = the engine's default
  bool is_swa_full = false;         // llama.cpp --swa-full
  std::optional<bool> is_unified;   // llama.cpp -kvu; unset = the engine's default
  bool has_flash_attention = true;  // llama.cpp -fa
  std::uint32_t draft_layers = 0;   // MTP or draft layers that run
  std::uint32_t draft_tokens = 0;   // tokens in flight when speculating
  std::uint64_t kv_memory_bytes = 0;  // the memory for the cache; 0 = none stated
  bool is_prefix_caching = false;   // engines that keep snapshots for it
};

// What one engine allocates for all sequences, on one rank.
struct EnginePlan {
  std::string engine;
  std::string profile;              // version profile used, e.g. "2026-08"
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> tokens;
  std::optional<std::uint64_t> blocks;
  std::optional<double> max_concurrency;
  std::map<std::string, std::string> printed;  // what the engine's log shows, same digits
  std::vector<LedgerEntry> ledger;             // sums to `bytes`
  std::vector<std::string> notes;              // sentences for the user
};

// Cost of one sequence on the ideal engine: fixed + slope x tokens, exact at `context`.
struct SequenceCost {
  std::uint64_t fixed_bytes = 0;         // windows at saturation, states
  double slope_bytes_per_token = 0;
  std::uint64_t context = 0;             // tokens
  std::uint64_t bytes = 0;               // at `context`, windows not yet full counted as they are
};

// Work of one decode step and of a prefill, all layers, all sequences, one rank. Attention only:
// scores, accumulation and indexers; projections and experts are not the cache's business.
struct StepCost {
  std::uint64_t read_bytes = 0;     // bytes of cache that one decode step must read
  double decode_flop = 0;
  double prefill_flop = 0;          // causal prefill of `context` tokens, one sequence
  std::uint64_t prefill_read_bytes = 0;  // every cached byte once per query tile at best
};

struct Plan {
  std::uint64_t context = 0;
  bool is_default_context = false;
  SequenceCost sequence;
  StepCost step;
  std::vector<EnginePlan> engines;
  std::vector<std::string> notes;
};

// Engine names that plan() knows: "ideal", "kvarto", ...
[[nodiscard]] std::vector<std::string> engine_names();

// Plans `model` on each of `engines`, "NAME" or "NAME@PROFILE". Errors: kInvalidArgument for an
// unknown engine or profile, a type the model or engine cannot hold, or sizes that overflow.
[[nodiscard]] Result<Plan> plan(const ModelSpec& model, const PlanRequest& request,
                                const std::vector<std::string>& engines);

// Largest context (tokens a sequence) that `engine` fits into `memory_bytes`, at most
// `max_tokens`; 0 if not even one token fits. Largest number of sequences at request.context.
[[nodiscard]] Result<std::uint64_t> largest_context(const ModelSpec& model, PlanRequest request,
                                                    std::string_view engine,
                                                    std::uint64_t memory_bytes,
                                                    std::uint64_t max_tokens);
[[nodiscard]] Result<std::uint64_t> largest_num_sequences(const ModelSpec& model,
                                                          PlanRequest request,
                                                          std::string_view engine,
                                                          std::uint64_t memory_bytes);

// The first device of `devices` (ascending memory) that holds `bytes`; nullopt if none does.
[[nodiscard]] std::optional<HardwareSpec> smallest_device(std::uint64_t bytes);

// Lower bounds on time from the plan: the larger of memory and arithmetic binds.
struct TimeFloor {
  double memory_s = 0;
  double arithmetic_s = 0;
  [[nodiscard]] double seconds() const { return memory_s > arithmetic_s ? memory_s : arithmetic_s; }
  [[nodiscard]] bool is_memory_bound() const { return memory_s >= arithmetic_s; }
};
[[nodiscard]] TimeFloor decode_floor(const StepCost& step, const HardwareSpec& device);
[[nodiscard]] TimeFloor prefill_floor(const StepCost& step, const HardwareSpec& device);

// One row of the --what-if table: the model's own heads and layers under another architecture.
struct WhatIf {
  std::string architecture;              // as asked, canonical ("gqa:8")
  std::uint64_t k_bytes = 0;             // streams named k or latent-like keys, at the context
  std::uint64_t v_bytes = 0;
  std::uint64_t other_bytes = 0;         // latents, index keys, compressed rows, states, masks
  std::uint64_t total_bytes = 0;
  double saving_against_mha = 0;         // 1 - total / MHA total
  std::uint64_t read_bytes_per_step = 0;
  std::vector<std::string> notes;        // e.g. an alias of a popular article explained
};

// The numbers that architecture words may leave open; 0 = the model's own or the family's best
// known (docs/terms.md).
struct WhatIfDefaults {
  std::uint32_t q_heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;
  std::uint32_t latent_dim = 0, rope_dim = 0, index_heads = 0, index_dim = 0;
  std::uint64_t top_k = 0, window = 0, group = 0;
  double ratio = 0;
};

// Builds `model` under another architecture: "mha", "mqa", "gqa[:G]", "mla[:L+R]", "dsa[:K]",
// "csa", "hca", "multilevel[:g[:w]]", "dynamic[:ratio]", "quest[:budget]", "moba", "nsa",
// "swa[:w]" and the aliases of popular articles. Keeps the model's query heads, head dim and
// layers. Errors: kInvalidArgument naming word and expectation.
[[nodiscard]] Result<ModelSpec> with_architecture(const ModelSpec& model, std::string_view word,
                                                  const WhatIfDefaults& defaults);
[[nodiscard]] Result<std::vector<WhatIf>> what_if(const ModelSpec& model,
                                                  const PlanRequest& request,
                                                  const std::vector<std::string>& words,
                                                  const WhatIfDefaults& defaults);

// Contiguous against paged reservation for sequences of the given lengths.
struct Reservation {
  std::uint64_t tokens = 0;       // real tokens
  std::uint64_t reserved_tokens = 0;
  std::uint64_t bytes = 0;        // reserved
  std::uint64_t wasted_bytes = 0;
  double utilisation = 0;         // tokens / reserved_tokens
};
struct ReservationComparison {
  Reservation contiguous;         // every sequence reserves the longest length
  Reservation paged;              // every sequence reserves whole blocks
};
[[nodiscard]] Result<ReservationComparison> compare_reservation(
    const ModelSpec& model, const PlanRequest& request, const std::vector<std::uint64_t>& lengths);

}  // namespace kvarto
