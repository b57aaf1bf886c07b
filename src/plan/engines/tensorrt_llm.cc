// Engine `tensorrt-llm`: blocks of 32 tokens in one pool per window; the number of blocks is
// rounded up, so that the pool may exceed its budget by a block.
//
// Source: NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/resource_manager.py; logs. Profile
// 2025 charges windowed layers the full length.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "plan/engines/paged_layers.h"

namespace kvarto {
namespace {

constexpr std::array<std::string_view, 2> kProfiles = {"2026", "2025"};
constexpr std::uint64_t kTokensPerBlock = 32;

Status check_block(std::uint64_t block) {
  if (block > 1 && (block & (block - 1)) == 0) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("engine tensorrt-llm: block size {}, expected a power of two above 1", block));
}

// Blocks of one sequence in the pool of such layers, and the rows they hold.
struct Blocks {
  std::uint64_t count = 0;
  std::uint64_t rows = 0;
};

Blocks blocks_of(const PagedLayers& layers, const EngineCase& engine_case, std::uint64_t block) {
  const PlanRequest& request = engine_case.request;
  std::uint64_t tokens = ceil_div(request.context, request.context_parallel);
  const bool is_windowed = layers.kind == PageKind::kWindow || layers.kind == PageKind::kChunk;
  if (is_windowed && engine_case.profile != "2025") tokens = std::min(tokens, layers.window);
  Blocks blocks;
  blocks.count = ceil_div(tokens, block);
  blocks.rows = blocks.count * block / layers.tokens_per_row;
  return blocks;
}

Status add_layers(Ledger& ledger, const PagedLayers& layers, const EngineCase& engine_case,
                  std::uint64_t block) {
  const PlanRequest& request = engine_case.request;
  const auto entry = [&](std::uint64_t rows) {
    return RowsEntry{
        .rows = rows, .num_sequences = request.num_sequences, .num_ranks = request.tensor_parallel};
  };
  if (layers.is_state()) {
    KVARTO_CHECK_OK(add_live_rows(ledger, layers, entry(1)));
    return add_rows_as(ledger, layers, entry(request.draft_tokens), Cause::kSnapshots);
  }
  const Stream& stream = *layers.streams.front().stream;
  const Blocks blocks = blocks_of(layers, engine_case, block);
  const std::uint64_t live =
      std::min(blocks.rows, ceil_div(peak_rows(stream, request.context), request.context_parallel));
  const std::uint64_t wanted = std::min(
      blocks.rows, ceil_div(request.context, request.context_parallel * layers.tokens_per_row));
  const std::uint64_t slack = engine_case.profile == "2025" && wanted > live ? wanted - live : 0;
  KVARTO_CHECK_OK(add_live_rows(ledger, layers, entry(live)));
  KVARTO_CHECK_OK(add_rows_as(ledger, layers, entry(slack), Cause::kWindowSlack));
  return add_rows_as(ledger, layers, entry(blocks.rows - live - slack), Cause::kBlockRounding);
}

Result<EnginePlan> plan_tensorrt_llm(const EngineCase& engine_case) {
  const PlanRequest& request = engine_case.request;
  const std::uint64_t block = request.block_size == 0 ? kTokensPerBlock : request.block_size;
  KVARTO_CHECK_OK(check_gpu_types(request, "tensorrt-llm"));
  KVARTO_CHECK_OK(check_block(block));
  KVARTO_TRY(const std::vector<PagedLayers> layers, paged_layers(engine_case, "tensorrt-llm"));
  if (has_compressed_rows(layers)) {
    return fail(ErrorCode::kUnsupported,
                "engine tensorrt-llm: rows compressed over tokens, whose pools this profile does "
                "not model");
  }
  Ledger ledger;
  std::uint64_t block_bytes = 0;  // of the pool of full-length layers
  std::uint64_t blocks = 0;
  const bool has_full = std::any_of(layers.begin(), layers.end(),
                                    [](const PagedLayers& l) { return l.kind == PageKind::kFull; });
  for (const PagedLayers& l : layers) {
    KVARTO_CHECK_OK(add_layers(ledger, l, engine_case, block));
    const bool is_full = l.kind == PageKind::kFull || !has_full || engine_case.profile == "2025";
    if (l.is_state()) continue;
    if (!is_full) continue;
    block_bytes += l.row_bytes * l.num_layers * block / l.tokens_per_row;
    blocks = std::max(blocks, blocks_of(l, engine_case, block).count * request.num_sequences);
  }
  EnginePlan plan;
  KVARTO_CHECK_OK(std::move(ledger).finish(plan));
  plan.blocks = blocks;
  if (request.kv_memory_bytes != 0 && block_bytes != 0) {
    plan.blocks = ceil_div(request.kv_memory_bytes, block_bytes);
    plan.max_concurrency =
        static_cast<double>(*plan.blocks * block) / static_cast<double>(request.context);
  }
  plan.tokens = *plan.blocks * block;
  plan.printed["tokens"] = fmt::format("{}", *plan.tokens);
  plan.printed["blocks"] = fmt::format("{}", *plan.blocks);
  plan.printed["printed_gib"] =
      gib(static_cast<double>(*plan.blocks) * static_cast<double>(block_bytes));
  return plan;
}

}  // namespace

const Engine kTensorRtLlmEngine = {"tensorrt-llm", kProfiles, &plan_tensorrt_llm};

}  // namespace kvarto
