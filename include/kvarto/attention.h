// Exact softmax attention over a block-paged cache, in f32 arithmetic or, on request, in f16;
// caches of 8- and 4-bit integer codes in integers.
//
// The queries of a group (the query heads of one KV head) are handled in one pass, so that each
// cached byte is read once; a prefix that forked sequences share by block ids is read once for all
// of them. What ran is in the report; nothing falls back silently.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "kvarto/cache_view.h"
#include "kvarto/observe.h"
#include "kvarto/result.h"
#include "kvarto/selection.h"

namespace kvarto {

// The arithmetic of scores and accumulation. What is asked for runs, or an error says why it
// cannot.
enum class Arith : std::uint8_t {
  kAuto,  // kInt8 where the cache has such tiles and it is faster: with 8-bit dot products, and in
          // decode with AVX2; else kF32
  kF32,
  // Products and short sums in 16 bits (AVX512-FP16), for K and V in f16 in the hardware layout, or
  // in rows that at least 16 query heads share.
  // Rounding moves a score by a random error of standard deviation at most
  //   e = u / sqrt(3) x sqrt(sum over d of w[d] x (scale x q[d])^2 x P[d]),
  // u = 2^-11, in natural-log units. P[d] is the peak mean square of key element d (SquaresView),
  // w[d] the number of roundings that its product goes through: the query is rounded once, and
  // chains of products are added one after the other in 16 bits. In tiles a chain has 16 products,
  // and 2 or 4 chains make a sum that goes to f32: w[d] <= 20. In rows products of every 32nd
  // element make a chain, and the 32 chains are added in four rounds in 16 bits and one in f32:
  // w[d] <= 5 + qk_dim / 32, rounded up. It supposes that roundings are independent and that the
  // signs of products are too; a rounding error is at most u of a partial sum, with standard
  // deviation u / sqrt(3). Before anything is written, a call is refused if the e of any query
  // exceeds kMaxHalfScoreError, or if a sum of values could leave the range of f16. Accumulation
  // adds at most u / sqrt(3) x sqrt(12) = 1e-3 of the largest output, whatever the data.
  kF16,
  // Integer products of the codes of int8, int4, q8_0 and q4_0 in tiles (the hardware layout),
  // added exactly, for K, V or both; the other stream then runs in f32. Softmax is always f32. With
  // the operands' largest integers Q (queries: 32,639 for 16 bits, 127 for 8) and P = 32,639: a
  // query element is rounded by at most max|q| / 2Q, which moves a score by at most
  //   scale x max|q| x sum over d of |k[d]| / 2Q,
  // and probability x scale of V is rounded by half of 1/P of the largest of its chunk of 64 rows
  // and group of elements, which moves an output by at most 32/P = 2^-10 of the largest |v|. All
  // else is exact up to f32 rounding; no property of the data is supposed.
  kInt8,
};
[[nodiscard]] std::string_view arith_name(Arith arith);
[[nodiscard]] std::optional<Arith> arith_from_name(std::string_view name);

// Keys and queries of N(0, 1) at scale 1 / sqrt(qk_dim) come to 1.3e-3 to 1.9e-3 by that formula
// and to 7e-4 as measured; outputs then differ by about 1e-3 of the largest.
inline constexpr double kMaxHalfScoreError = 2.5e-3;

// The score of query position i and row j is
//   s = scale * (q . k[j]);  s = soft_cap * tanh(s / soft_cap) if soft_cap > 0;
//   s = s + alibi_slopes[head] * (j - i)
// and the sink logit of a head, where given, takes part in the softmax's denominator alone.
struct AttentionOptions {
  std::optional<float> scale;           // unset: 1 / sqrt(qk_dim)
  float soft_cap = 0;                   // 0: off
  std::span<const float> alibi_slopes;  // [num_q_heads]; empty: off
  std::uint64_t window = 0;             // tokens, the query's own included; 0: off
  std::uint64_t chunk = 0;              // a query sees its own chunk of so many tokens; 0: off
  std::span<const float> sink_logits;   // [num_q_heads]; empty: off
  Arith arith = Arith::kAuto;
  std::uint32_t query_bits = 16;  // of integer arithmetic: 16 or, faster and less exact, 8
};

// One query token per sequence: the last of its num_tokens.
//   q    [num_sequences, num_q_heads, qk_dim]
//   out  [num_sequences, num_q_heads, v_dim]
//   lse  [num_sequences, num_q_heads], natural logarithm, or empty if not wanted
// A sequence without tokens gets out 0 and lse -infinity (the sink logit where there is one).
struct DecodeCall {
  CacheView view;
  std::uint32_t num_q_heads = 0;
  std::span<const float> q;
  AttentionOptions options;
  std::span<float> out;
  std::span<float> lse;
  // The rows that each sequence reads, ascending and below its num_tokens, the same ones for all
  // heads; empty: all visible ones. Each row is looked up by itself, its successors are prefetched,
  // no other row is touched. For keys in rows (streams read by top-k), without window, chunk and
  // ALiBi. A sequence that selects nothing gets what one without tokens gets.
  std::span<const std::span<const std::uint32_t>> selections;  // [num_sequences]
};

// Causal attention of the last q_lens[s] tokens of each sequence s, whose rows are in the cache
// already (a chunk of a prompt, or a prompt onto an existing cache).
//   q    [sum of q_lens, num_q_heads, qk_dim], sequence after sequence
//   out  [sum of q_lens, num_q_heads, v_dim];  lse as in DecodeCall
struct PrefillCall {
  CacheView view;
  std::span<const std::uint64_t> q_lens;
  std::uint32_t num_q_heads = 0;
  std::span<const float> q;
  AttentionOptions options;
  std::span<float> out;
  std::span<float> lse;
};

// What really ran.
struct AttentionReport {
  // "dense_tiles" or "dense_rows"; "_fill_k", "_fill_v", "_fill_kv" behind it say whose rows were
  // decoded into f32 first. "dense_shared_rows": rows that are K and V, once for many queries.
  // "selected_..." where the call named rows.
  std::string_view kernel;
  std::string_view isa;          // "scalar", "avx2", "avx512", "avx512fp16", "avx512vnni"
  std::string_view layout;       // "hardware" or "generic"
  std::string_view arith;        // "f32", "f16", "int8"
  std::uint32_t query_bits = 0;  // of integer arithmetic, else 0
  std::uint64_t num_threads = 0;
  std::uint64_t num_work_items = 0;
  std::uint64_t rows_read = 0;  // rows of K, each with all its heads; the V rows are as many
  // Cached bytes of K and V that were read, each reading counted; of a row that is both, once.
  std::uint64_t bytes_read = 0;
};

struct RunnerOptions {
  std::uint32_t num_threads = 1;
  bool is_pinned = false;  // binds each thread to a core of its own; needs as many cores
};

struct RunnerState;  // kernels, threads and scratch memory

// Runs attention on threads of its own, with scratch memory that it keeps between calls.
// Not thread-safe; one owner. Several runners may read one cache at the same time.
class AttentionRunner {
 public:
  // Errors: kInvalidArgument (no threads, more than 1024, an unknown KVARTO_ISA), kUnsupported (an
  // instruction set that this machine lacks).
  [[nodiscard]] static Result<AttentionRunner> create(const RunnerOptions& options);
  AttentionRunner(AttentionRunner&&) noexcept;
  AttentionRunner& operator=(AttentionRunner&&) noexcept;
  ~AttentionRunner();

  // Errors: kInvalidArgument for shapes, tables or options that do not fit each other; kUnsupported
  // for codecs and layouts without a kernel, and for an arithmetic that cannot run here or is not
  // exact enough for the data. `out` and `lse` are untouched then.
  // The result is the same, bit for bit, for equal numbers of threads.
  [[nodiscard]] Result<AttentionReport> decode(const DecodeCall& call);
  [[nodiscard]] Result<AttentionReport> prefill(const PrefillCall& call);

  // Scores index keys and selects rows by them (selection.h). Errors: kInvalidArgument for shapes
  // and tables that do not fit each other; kUnsupported for index keys that no kernel reads.
  [[nodiscard]] Result<SelectReport> select(const SelectCall& call, Selection& selection);

  // Tells `observer` of every decode from now on; nullptr ends it.
  void set_observer(Observer* observer);

  [[nodiscard]] std::uint32_t num_threads() const;

 private:
  friend class RunnerAccess;  // attention of other kinds, on the same threads
  explicit AttentionRunner(std::unique_ptr<RunnerState> state);
  std::unique_ptr<RunnerState> state_;
};

}  // namespace kvarto
