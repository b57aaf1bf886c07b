// The planner: what a model's cache costs, byte by byte and cause by cause. Pure arithmetic.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/hardware_spec.h"
#include "kvarto/layer_types.h"
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

// One line of the ledger: bytes of one cause in one stream of one architecture, over `layers`
// layers and all sequences. Bytes that no stream owns (the rounding of a pool) have the stream
// "pool" and no architecture.
struct LedgerEntry {
  Cause cause{};
  std::string stream;
  std::string architecture;  // of the layer group, "" = none in particular
  std::uint32_t layers = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const LedgerEntry&, const LedgerEntry&) = default;
};

// The context that is planned when none is asked for: the smaller of this and the model's own.
inline constexpr std::uint64_t kDefaultContextTokens = 32'768;

// What is planned. The engines' own options have the meaning of the engine's flag of that name.
struct PlanRequest {
  std::uint64_t context = 0;  // tokens a sequence; 0 = the smaller of the model's and 32,768
  std::uint64_t num_sequences = 1;
  CacheTypes types;
  std::vector<LayerTypes> layer_types;  // of some layers alone; engines ideal and kvarto
  std::uint32_t tensor_parallel = 1;
  std::uint32_t context_parallel = 1;
  std::uint64_t block_size = 0;       // tokens; 0 = the engine's default
  std::uint64_t micro_batch = 0;      // tokens appended at once; 0 = the engine's default
  bool is_swa_full = false;           // llama.cpp --swa-full
  std::optional<bool> is_unified;     // llama.cpp -kvu; unset = the engine's default
  bool has_flash_attention = true;    // llama.cpp -fa
  std::uint32_t draft_layers = 0;     // MTP or draft layers that run
  std::uint32_t draft_tokens = 0;     // tokens in flight when speculating
  std::uint64_t kv_memory_bytes = 0;  // the memory for the cache; 0 = none stated
  bool is_prefix_caching = false;     // engines that keep snapshots for it
  bool keeps_squares = false;         // engine kvarto: as in CacheOptions
};

// What one engine allocates for all sequences, on one rank.
//
// With `kv_memory_bytes` stated, engines that do not size their pool by the memory themselves
// (`ideal`, `kvarto`) still plan the sequences asked for, and tell in `max_concurrency` how many
// such sequences the memory holds, in `tokens` that number times the context (`kvarto`: the whole
// ones, and the longest that fits beside them), and in `blocks` (`kvarto`) the blocks of so many
// sequences. Without it `blocks` are those of the plan.
struct EnginePlan {
  std::string engine;
  std::string profile;  // version profile used, e.g. "2026-08"
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> tokens;
  std::optional<std::uint64_t> blocks;
  std::optional<double> max_concurrency;
  std::map<std::string, std::string> printed;  // what the engine's log shows, same digits
  std::vector<LedgerEntry> ledger;             // sums to `bytes`
  std::vector<std::string> notes;              // sentences for the user
};

// An engine that cannot do what was asked, when all engines were asked.
struct EngineRefusal {
  std::string engine;
  Error error;
};

// Cost of one sequence on the ideal engine, one rank: fixed + slope x tokens. The affine form is
// exact where all windows and chunks are full and the context is a multiple of every
// tokens_per_row; `bytes` is exact at every context.
struct SequenceCost {
  // Windows at saturation, states; less what streams whose rows are born late do not yet hold.
  std::uint64_t fixed_bytes = 0;
  double slope_bytes_per_token = 0;  // streams that never die, and masks of one step
  std::uint64_t context = 0;         // tokens
  // The most that a sequence holds while it grows to `context`: windows not yet full are counted
  // as they are, a chunk whole once one is over.
  std::uint64_t bytes = 0;
};

// Work of attention, all layers, one rank: scores, accumulation, indexers and block summaries. A
// multiply-add is 2 FLOP. Projections, experts and the update of recurrent states are not counted.
//
// A query head spends 2 x (qk_dim + v_dim) FLOP on a visible row, the indexer 2 x heads x dim on an
// index row, a query head 2 FLOP on an element of a block summary. MLA counts as executed on the
// latent (absorbed). In a prefill every query sees the rows that a decode step at its position
// sees, except that predictors' ratios do not apply: their prefill is dense.
struct StepCost {
  std::uint64_t read_bytes = 0;  // cache that one decode step of all sequences must read
  double decode_flop = 0;        // one decode step of all sequences
  double prefill_flop = 0;       // causal prefill of `context` tokens, one sequence
  // Every row that the prefill of one sequence bears, once: the least that any tiling reads.
  std::uint64_t prefill_read_bytes = 0;
};

struct Plan {
  std::uint64_t context = 0;
  bool is_default_context = false;
  SequenceCost sequence;
  StepCost step;
  std::vector<EnginePlan> engines;      // in the order asked for
  std::vector<EngineRefusal> refusals;  // under "all" alone
  std::vector<std::string> notes;
};

// Engine names that plan() knows: "ideal", "kvarto", ...
[[nodiscard]] std::vector<std::string> engine_names();

// Version profiles of an engine, newest (the default) first; empty for an unknown engine.
[[nodiscard]] std::vector<std::string> engine_profiles(std::string_view engine);

// Plans `model` on each of `engines`, "NAME", "NAME@PROFILE", or "all", each of them once. An
// engine that cannot do what is asked is an error, under "all" a refusal beside the others' plans;
// an option that it does not have and can leave aside is one of its notes. Errors:
// kInvalidArgument for an unknown engine or profile, a type the model or engine cannot hold, or
// sizes that overflow (the message names the field); kUnsupported for an option that the engine
// does not have.
[[nodiscard]] Result<Plan> plan(const ModelSpec& model, const PlanRequest& request,
                                const std::vector<std::string>& engines);

// Largest context (tokens a sequence) that `engine` fits into `memory_bytes`, at most
// `max_tokens`; 0 if not even one token fits. Largest number of sequences at request.context, at
// most kMaxSequences. More memory never gives less. Errors: as plan().
inline constexpr std::uint64_t kMaxSequences = std::uint64_t{1} << 32;
[[nodiscard]] Result<std::uint64_t> largest_context(const ModelSpec& model, PlanRequest request,
                                                    std::string_view engine,
                                                    std::uint64_t memory_bytes,
                                                    std::uint64_t max_tokens);
[[nodiscard]] Result<std::uint64_t> largest_num_sequences(const ModelSpec& model,
                                                          PlanRequest request,
                                                          std::string_view engine,
                                                          std::uint64_t memory_bytes);

// The device with the least memory that holds `bytes` (catalogue.h has the known ones); nullopt if
// none does.
[[nodiscard]] std::optional<HardwareSpec> smallest_device(std::uint64_t bytes,
                                                          std::span<const HardwareSpec> devices);

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
  std::string architecture;               // canonical ("gqa:8", "mla:512+64")
  std::uint64_t k_bytes = 0;              // streams named k, all sequences at the context, one rank
  std::uint64_t v_bytes = 0;              // streams named v
  std::uint64_t other_bytes = 0;          // latents, index keys, compressed rows, states, masks
  std::uint64_t total_bytes = 0;          // of engine `ideal`
  double saving_against_mha = 0;          // 1 - total / MHA total; negative if it takes more
  std::uint64_t read_bytes_per_step = 0;  // as StepCost::read_bytes
  std::vector<std::string> notes;         // e.g. an alias of a popular article explained
};

// The numbers that architecture words may leave open; 0 = the model's own or the family's best
// known (docs/terms.md).
struct WhatIfDefaults {
  std::uint32_t q_heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;
  std::uint32_t latent_dim = 0, rope_dim = 0, index_heads = 0, index_dim = 0;
  std::uint64_t top_k = 0, window = 0, group = 0;
  double ratio = 0;
};

// The numbers that an architecture's word leaves open and its layers depend on, by the names of the
// options: "kv-heads", "window", ... Errors: kInvalidArgument for an unknown word.
[[nodiscard]] Result<std::vector<std::string_view>> open_numbers(std::string_view word);

// The numbers that a word states itself, with the KV heads that its architecture has anyway.
// Errors: as open_numbers().
struct StatedNumber {
  std::string_view name;
  double value = 0;
};
[[nodiscard]] Result<std::vector<StatedNumber>> stated_numbers(std::string_view word);

// Builds `model` under another architecture: "mha", "mqa", "gqa[:G]", "mla[:L+R]", "dsa[:K]",
// "csa", "hca", "multilevel[:g[:w]]", "dynamic[:ratio]", "quest[:budget]", "moba", "nsa",
// "swa[:w]" and the aliases of popular articles. Keeps the model's query heads, head dim and
// layers; layers that only keep a state, or nothing, stay as they are. An alias adds a note to
// the model's. Errors: kInvalidArgument naming word and expectation.
[[nodiscard]] Result<ModelSpec> with_architecture(const ModelSpec& model, std::string_view word,
                                                  const WhatIfDefaults& defaults);
[[nodiscard]] Result<std::vector<WhatIf>> what_if(const ModelSpec& model,
                                                  const PlanRequest& request,
                                                  const std::vector<std::string>& words,
                                                  const WhatIfDefaults& defaults);

// A model of `layers` equal layers from an architecture and numbers alone (`--arch` without MODEL).
// What `defaults` leaves 0 is llama-3.1-8b's for architectures with K and V, DeepSeek-V3's for mla,
// V3.2's for dsa, V4-Flash's for csa and hca. Errors: kInvalidArgument naming word or number.
[[nodiscard]] Result<ModelSpec> geometry_model(std::string_view word,
                                               const WhatIfDefaults& defaults,
                                               std::uint32_t layers);

// Contiguous against paged reservation for sequences of the given lengths.
struct Reservation {
  std::uint64_t tokens = 0;  // real tokens
  std::uint64_t reserved_tokens = 0;
  std::uint64_t bytes = 0;         // reserved, on engine `ideal`
  std::uint64_t wasted_bytes = 0;  // reserved less what the real tokens take
  double utilisation = 0;          // tokens / reserved_tokens
};
struct ReservationComparison {
  Reservation contiguous;        // every sequence reserves the longest length
  Reservation paged;             // every sequence reserves whole blocks
  std::uint64_t block_size = 0;  // tokens, as planned
};
// Errors: kInvalidArgument if there are no lengths, for a length of 0, and as plan().
[[nodiscard]] Result<ReservationComparison> compare_reservation(
    const ModelSpec& model, const PlanRequest& request, const std::vector<std::uint64_t>& lengths);

}  // namespace kvarto
