// kvarto bench: one kernel measured against what this machine can do. Options and choice of the
// measurement; each has a file of its own (bench_*.cc).

#include <fmt/format.h>

#include <memory>

#include "bench_append.h"
#include "bench_attention.h"
#include "bench_machine.h"
#include "bench_sparse.h"
#include "bench_words.h"
#include "command.h"

namespace kvarto::cli {
namespace {

Status run_machine(const BenchAsked& asked, Output& out) {
  const bool has_shape = asked.q_heads || asked.kv_heads || asked.head_dim || asked.v_head_dim ||
                         asked.window || asked.q_len || asked.batch;
  const bool has_cache = !asked.types.empty() || !asked.key_types.empty() ||
                         !asked.value_types.empty() || !asked.lengths.empty() ||
                         !asked.layouts.empty() || !asked.block_sizes.empty();
  const bool has_indexer =
      asked.top_k || asked.index_heads || asked.index_dim || !asked.index_types.empty();
  const BenchAsked none;
  const bool has_kernel = asked.architecture != none.architecture || !asked.latent.is_empty() ||
                          asked.arithmetic != none.arithmetic || asked.query_bits ||
                          asked.content != none.content || asked.baseline != none.baseline;
  if (has_shape || has_cache || has_indexer || has_kernel) {
    return refuse_option("options of a cache or kernel", "bench machine has none");
  }
  return run_machine_bench({asked.threads, asked.seconds, asked.is_json}, out);
}

Status run_measurement(const BenchAsked& asked, Output& out) {
  if (asked.what == "machine") return run_machine(asked, out);
  if (asked.what == "append") return run_append_bench(asked, out);
  if (asked.what != "decode" && asked.what != "prefill") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("bench: found \"{}\", expected machine, decode, prefill or append",
                            asked.what));
  }
  // Rows that an indexer picks have a measurement of their own.
  return asked.architecture_name() == "dsa" ? run_sparse_bench(asked, out)
                                            : run_attention_bench(asked, out);
}

Result<ExitCode> run(const BenchAsked& asked, Output& out) {
  KVARTO_CHECK_OK(run_measurement(asked, out));
  return ExitCode::kDone;
}

Runner declare(OptionSet& options) {
  auto asked = std::make_shared<BenchAsked>();
  options.positional("WHAT", &asked->what, "machine, decode, prefill or append");
  options.section("shape");
  options.text("--arch", "A", &asked->architecture,
               "mha, mqa, gqa[:G], swa[:w], mla[:L+R] or dsa[:K] (default gqa)");
  options.count("--q-heads", 1, &asked->q_heads, "query heads (default 32; mla, dsa: 128)");
  options.count("--kv-heads", 1, &asked->kv_heads, "KV heads (default 8; mha: as query heads)");
  options.count("--head-dim", 1, &asked->head_dim, "elements of a head (default 128)");
  options.count("--v-head-dim", 1, &asked->v_head_dim, "elements of a head of V");
  options.count("--latent-dim", 1, &asked->latent.latent_dim,
                "mla, dsa: elements of a latent (default 512)");
  options.count("--rope-dim", 0, &asked->latent.rope_dim,
                "mla, dsa: rotated elements of a row (default 64)");
  options.count("--nope-dim", 0, &asked->latent.nope_dim,
                "mla: of a head before it is absorbed (default 128; --v-head-dim likewise)");
  options.text("--form", "F", &asked->latent.form,
               "mla: naive, absorbed or auto, with the up-projections (default: prefill auto, "
               "decode absorbed queries)");
  options.count("--window", 1, &asked->window, "tokens of a window");
  options.count("--top-k", 1, &asked->top_k, "dsa: rows that the indexer picks (default 2048)");
  options.count("--index-heads", 1, &asked->index_heads, "dsa: heads of the indexer (default 64)");
  options.count("--index-dim", 1, &asked->index_dim, "dsa: elements of an index key (default 128)");
  options.list("--kv-dtype,--kv-cache-dtype", "T", &asked->types,
               "cache type of K and V (default f16): f32 f16 bf16 fp8 fp8_e5m2 q8_0 q5_1 q5_0 q4_1 "
               "q4_0 iq4_nl int8 int4 nvfp4 mxfp4; mla and dsa: fp8_ds_mla too");
  options.list("--index-type", "T", &asked->index_types,
               "dsa: type of index keys (default: the release's own, fp8 with a scale)");
  options.list("-ctk,--cache-type-k", "T", &asked->key_types, "type of K alone");
  options.list("-ctv,--cache-type-v", "T", &asked->value_types, "type of V alone");
  options.list("--kv-len", "N", &asked->lengths,
               "cached tokens, several with commas (default 4096)");
  options.count("--q-len", 1, &asked->q_len,
                "prefill: query tokens (default: all; dsa: at most 512); append: tokens a step "
                "(default: 1)");
  options.count("-np,--batch,--parallel,--max-num-seqs", 1, &asked->batch, "sequences (default 1)");
  options.section("how");
  options.list("-t,--threads", "K", &asked->threads, "threads (default 1; machine: 1 and all)");
  options.list("--layout", "L", &asked->layouts, "generic, hardware (default hardware)");
  options.list("--block-size,--page-size", "N", &asked->block_sizes,
               "tokens a block, or contiguous (default 16)");
  options.text("--arith", "A", &asked->arithmetic,
               "auto, f32, f16 or int8 (default auto: int8 for tiles of int8, int4, q8_0 and q4_0 "
               "where integers are faster here, else f32)");
  options.count("--query-bits", 1, &asked->query_bits, "of int8: 16 or 8 (default 16)");
  options.text("--data", "D", &asked->content, "normal or outlier");
  options.text("--baseline", "B", &asked->baseline,
               "repeat: K and V written out for every query head");
  options.text("--seconds", "S", &asked->seconds,
               "about so long is measured each, but no less than five runs (default 1)");
  options.flag("--json", &asked->is_json, "one JSON document on standard output");
  return [asked](Output& out) { return run(*asked, out); };
}

}  // namespace

const Command kBenchCommand{"bench", "machine|decode|prefill|append [options]",
                            "one kernel measured against the machine's ceiling", declare};

}  // namespace kvarto::cli
