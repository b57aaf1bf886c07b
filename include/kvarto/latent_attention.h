// Multi-head latent attention with its up-projections: DeepSeek-V2 (arXiv 2405.04434), section 2.1.
//
// A token caches one row [c, k_r], its latent and the rope part of its key. Head h has the key
// [W_UK,h c, k_r] and the value W_UV,h c. Two ways give the same output:
//   naive     keys and values of every head are computed from the rows, then attention over them
//   absorbed  q' = [W_UK,h^T q_nope, q_rope] attends the rows themselves, whose latents are the
//             values, and W_UV,h turns what comes out into the head's output
// docs/mla.md derives both and the cost rule.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kvarto/attention.h"
#include "kvarto/cache_view.h"
#include "kvarto/result.h"

namespace kvarto {

enum class LatentForm : std::uint8_t { kAuto, kNaive, kAbsorbed };
[[nodiscard]] std::string_view latent_form_name(LatentForm form);  // "auto", "naive", "absorbed"
[[nodiscard]] std::optional<LatentForm> latent_form_from_name(std::string_view name);

// The up-projections of one layer, in f32. Checkpoints keep both in one matrix kv_b_proj,
// [num_heads, nope_dim + v_dim, latent_dim].
struct LatentWeights {
  std::span<const float> w_uk;  // [num_heads, nope_dim, latent_dim]
  std::span<const float> w_uv;  // [num_heads, v_dim, latent_dim]
  std::uint32_t nope_dim = 0;   // 0: heads without such a part
  std::uint32_t v_dim = 0;
};

// Decode, or prefill where `q_lens` are given, over latent rows that are in the cache already:
//   view  KvCache::view(latent, latent): K all elements of a row, V the first latent_dim ones
//   q     [num_tokens, num_heads, nope_dim + rope_dim], the rope part rotated;
//         num_tokens: one for each sequence, or the sum of q_lens as in PrefillCall
//   out   [num_tokens, num_heads, v_dim];  lse [num_tokens, num_heads] or empty
struct LatentCall {
  CacheView view;
  std::span<const std::uint64_t> q_lens;  // prefill: query tokens of each sequence
  std::uint32_t num_heads = 0;
  LatentWeights weights;
  std::span<const float> q;
  AttentionOptions options;  // scale unset: 1 / sqrt(nope_dim + rope_dim)
  LatentForm form = LatentForm::kAuto;
  std::span<float> out;
  std::span<float> lse;
  std::span<const std::span<const std::uint32_t>> selections;  // decode: as in DecodeCall
};

// What a form costs: arithmetic in FLOP (a multiply-add counts two), and bytes of rows, weights,
// expanded keys and values or absorbed queries that it moves.
struct LatentCost {
  double flop = 0;
  double bytes = 0;
  // FLOP that a core does in f32 while it moves a byte from memory: 178 GFLOP/s over 15 GB/s.
  static constexpr double kFlopPerByte = 12;
  [[nodiscard]] double total() const { return flop + kFlopPerByte * bytes; }
};

// What latent_cost() depends on.
struct LatentWork {
  std::uint64_t num_heads = 0;
  std::uint64_t latent_dim = 0;
  std::uint64_t rope_dim = 0;
  std::uint64_t nope_dim = 0;
  std::uint64_t v_dim = 0;
  std::uint64_t row_bytes = 0;    // of a cached row
  std::uint64_t num_rows = 0;     // that any query sees, all sequences
  std::uint64_t num_queries = 0;  // tokens
  double num_pairs = 0;           // visible rows, summed over the queries
};
// Requires: form is not kAuto.
[[nodiscard]] LatentCost latent_cost(LatentForm form, const LatentWork& work);
// The form whose total() is smaller; absorbed where they are equal.
[[nodiscard]] LatentForm cheaper_form(const LatentWork& work);

struct LatentReport {
  AttentionReport attention;                // over cached rows, or over expanded keys and values
  LatentForm form = LatentForm::kAbsorbed;  // that ran
  LatentCost naive;
  LatentCost absorbed;
};

// Runs the cheaper form, or the one that the call names, on the threads of `runner`. Arithmetic in
// f16 runs absorbed, on the rows whose bound is known; the products with weights are f32 always.
// Errors: as AttentionRunner::decode and prefill; kInvalidArgument for weights of another shape;
// kUnsupported for the naive form in f16. `out` and `lse` are unspecified after an error of the
// attention itself, untouched after any other.
[[nodiscard]] Result<LatentReport> attend_latent(AttentionRunner& runner, const LatentCall& call);

}  // namespace kvarto
