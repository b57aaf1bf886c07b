// Statements about plans that hold for every model, request and engine without outside state.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kvarto/plan.h"
#include "plan/step_cost.h"
#include "plan_models.h"

namespace kvarto {
namespace {

using rc::gen::inRange;

Lifetime any_lifetime() {
  using Kind = Lifetime::Kind;
  const Kind kind = *rc::gen::element(Kind::kNever, Kind::kWindow, Kind::kChunk, Kind::kTtl,
                                      Kind::kKept, Kind::kStep, Kind::kConstant);
  const bool has_tokens = kind != Kind::kNever && kind != Kind::kStep && kind != Kind::kConstant;
  return {kind, has_tokens ? *inRange<std::uint64_t>(1, 700) : 0};
}

Access any_access() {
  using Kind = Access::Kind;
  Access access;
  access.kind = *rc::gen::element(Kind::kAll, Kind::kWindow, Kind::kTopK, Kind::kRatio,
                                  Kind::kBlocks, Kind::kNone);
  access.count = *inRange<std::uint64_t>(1, 500);
  access.ratio = *inRange(1, 101) / 100.0;
  return access;
}

Stream any_stream(const std::string& name) {
  Stream stream;
  stream.name = name;
  const int num_fields = *inRange(1, 3);
  for (int i = 0; i < num_fields; ++i) {
    Field field;
    field.name = "f" + std::to_string(i);
    field.heads = *inRange(1u, 20u);
    field.width = 32 * *inRange(1u, 9u);
    field.role =
        *rc::gen::element(CodecRole::kKey, CodecRole::kValue, CodecRole::kIndex, CodecRole::kFixed);
    field.native = *rc::gen::element(Codec::kBF16, Codec::kF32, Codec::kFp8Scaled128);
    stream.fields.push_back(field);
  }
  stream.lifetime = any_lifetime();
  stream.access = any_access();
  const bool has_group = stream.lifetime.kind != Lifetime::Kind::kChunk &&
                         stream.lifetime.kind != Lifetime::Kind::kConstant;
  stream.tokens_per_row = has_group ? *rc::gen::element<std::uint64_t>(1, 1, 2, 4, 16, 128) : 1;
  if (has_group) {
    stream.birth_delay_tokens = *rc::gen::element<std::uint64_t>(0, 0, 100);
    stream.access.align_rows = *rc::gen::element<std::uint64_t>(1, 1, 16, 50);
    stream.access.skip_tokens = *rc::gen::element<std::uint64_t>(0, 0, 16, 100, 700);
  }
  stream.shard = *rc::gen::element(Shard::kHead, Shard::kReplicate);
  stream.purpose = *rc::gen::element(Purpose::kAttention, Purpose::kIndexer, Purpose::kState,
                                     Purpose::kMetadata, Purpose::kMask);
  return stream;
}

ModelSpec any_model() {
  ModelSpec model;
  const int num_groups = *inRange(1, 4);
  for (int g = 0; g < num_groups; ++g) {
    LayerGroup group;
    group.architecture = *rc::gen::element<std::string>("a", "b");
    group.query = {.q_heads = *inRange(1u, 65u), .qk_dim = 128, .v_dim = 64};
    const std::uint32_t num_layers = *inRange(1u, 20u);
    for (std::uint32_t i = 0; i < num_layers; ++i) group.layers.push_back(model.num_layers++);
    const int num_streams = *inRange(0, 4);
    for (int s = 0; s < num_streams; ++s) {
      group.streams.push_back(any_stream(*rc::gen::element<std::string>("k", "v", "latent")));
    }
    model.groups.push_back(group);
  }
  return model;
}

PlanRequest any_request() {
  PlanRequest request;
  request.context = *inRange<std::uint64_t>(1, 5000);
  request.num_sequences = *inRange<std::uint64_t>(1, 20);
  const std::string type = *rc::gen::element<std::string>("auto", "bf16", "q8_0", "int4", "fp8");
  request.types = {type, *rc::gen::element<std::string>("bf16", "q4_0"), ""};
  request.tensor_parallel = *inRange(1u, 20u);
  request.block_size = *rc::gen::element<std::uint64_t>(0, 1, 16, 100);
  request.micro_batch = *rc::gen::element<std::uint64_t>(0, 1, 64, 1'000'000);
  return request;
}

Plan planned(const ModelSpec& model, const PlanRequest& request,
             const std::vector<std::string>& engines) {
  auto result = plan(model, request, engines);
  if (!result) RC_FAIL(result.error().message);
  return *result;
}

const std::vector<std::string> kOwnEngines = {"ideal", "kvarto"};

RC_GTEST_PROP(PlanProperty, EveryByteHasACause, ()) {
  const Plan plan = planned(any_model(), any_request(), kOwnEngines);
  for (const EnginePlan& engine : plan.engines) {
    std::uint64_t sum = 0;
    for (const LedgerEntry& entry : engine.ledger) {
      RC_ASSERT(entry.bytes > 0u);
      sum += entry.bytes;
    }
    RC_ASSERT(sum == engine.bytes);
  }
}

RC_GTEST_PROP(PlanProperty, BytesNeverShrinkWithTheContext, ()) {
  const ModelSpec model = any_model();
  PlanRequest request = any_request();
  const Plan shorter = planned(model, request, kOwnEngines);
  request.context += *inRange<std::uint64_t>(0, 300);
  const Plan longer = planned(model, request, kOwnEngines);
  for (std::size_t i = 0; i < kOwnEngines.size(); ++i) {
    RC_ASSERT(longer.engines[i].bytes >= shorter.engines[i].bytes);
  }
}

RC_GTEST_PROP(PlanProperty, TheIdealIsTheFloorOfOurOwnEngine, ()) {
  const Plan plan = planned(any_model(), any_request(), kOwnEngines);
  RC_ASSERT(plan.engines[0].bytes <= plan.engines[1].bytes);
}

RC_GTEST_PROP(PlanProperty, RanksTogetherHoldAtLeastTheWhole, ()) {
  const ModelSpec model = any_model();
  PlanRequest request = any_request();
  const Plan rank = planned(model, request, {"ideal"});
  const std::uint64_t ranks = request.tensor_parallel;
  request.tensor_parallel = 1;
  const Plan whole = planned(model, request, {"ideal"});
  RC_ASSERT(rank.engines[0].bytes * ranks >= whole.engines[0].bytes);
  RC_ASSERT(rank.engines[0].bytes <= whole.engines[0].bytes);
  // Without the replication, all ranks hold no more than the whole.
  std::uint64_t replicated = 0;
  for (const LedgerEntry& entry : rank.engines[0].ledger) {
    replicated += entry.cause == Cause::kReplication ? entry.bytes : 0;
  }
  RC_ASSERT((rank.engines[0].bytes - replicated) * ranks <= whole.engines[0].bytes);
}

RC_GTEST_PROP(PlanProperty, MoreMemoryNeverFitsLess, ()) {
  const ModelSpec model = any_model();
  const PlanRequest request = any_request();
  const std::string engine = *rc::gen::elementOf(kOwnEngines);
  const auto less = *inRange<std::uint64_t>(0, 1u << 30);
  const auto more = less + *inRange<std::uint64_t>(0, 1u << 24);
  const auto tokens_less = largest_context(model, request, engine, less, 100'000);
  const auto tokens_more = largest_context(model, request, engine, more, 100'000);
  RC_ASSERT(tokens_less.has_value() && tokens_more.has_value());
  RC_ASSERT(*tokens_less <= *tokens_more);
  const auto sequences_less = largest_num_sequences(model, request, engine, less);
  const auto sequences_more = largest_num_sequences(model, request, engine, more);
  RC_ASSERT(sequences_less.has_value() && sequences_more.has_value());
  RC_ASSERT(*sequences_less <= *sequences_more);
}

RC_GTEST_PROP(PlanProperty, TheLargestContextFitsAndTheNextDoesNot, ()) {
  const ModelSpec model = any_model();
  PlanRequest request = any_request();
  const std::string engine = *rc::gen::elementOf(kOwnEngines);
  const auto memory = *inRange<std::uint64_t>(0, 1u << 30);
  constexpr std::uint64_t kMaxTokens = 100'000;
  const auto found = largest_context(model, request, engine, memory, kMaxTokens);
  RC_ASSERT(found.has_value());
  if (*found > 0) {
    request.context = *found;
    RC_ASSERT(planned(model, request, {engine}).engines[0].bytes <= memory);
  }
  if (*found < kMaxTokens) {
    request.context = *found + 1;
    RC_ASSERT(planned(model, request, {engine}).engines[0].bytes > memory);
  }
}

// Where all windows are full and all groups complete, the affine form is exact.
RC_GTEST_PROP(PlanProperty, TheCostIsAffineBeyondTheWindows, ()) {
  ModelSpec model = any_model();
  PlanRequest request = any_request();
  // Rows born late take off from the constant part, which ends at zero.
  for (LayerGroup& group : model.groups) {
    for (Stream& stream : group.streams) stream.birth_delay_tokens = 0;
  }
  // Above every window (at most 700 rows of 128 tokens) and a multiple of every group.
  request.context = 128 * 700 + 128 * *inRange<std::uint64_t>(0, 1000);
  const Plan plan = planned(model, request, {});
  const double affine = static_cast<double>(plan.sequence.fixed_bytes) +
                        plan.sequence.slope_bytes_per_token * static_cast<double>(request.context);
  const auto exact = static_cast<double>(plan.sequence.bytes);
  RC_ASSERT(std::abs(affine - exact) <= 1e-9 * exact);
}

RC_GTEST_PROP(PlanProperty, TheRowsAPrefillSeesAreThoseOfItsPositions, ()) {
  const Stream stream = any_stream("k");
  const auto tokens = *inRange<std::uint64_t>(0, 3000);
  Stream dense_in_prefill = stream;
  if (stream.access.kind == Access::Kind::kRatio) dense_in_prefill.access = {};
  double walked = 0;
  for (std::uint64_t t = 1; t <= tokens; ++t) {
    walked += static_cast<double>(rows_read(dense_in_prefill, t));
  }
  RC_ASSERT(prefill_rows_seen(stream, tokens) == walked);
}

RC_GTEST_PROP(PlanProperty, TheRowsOfTheWhatIfTableAreConsistent, ()) {
  const std::uint32_t kv_heads = *inRange(1u, 9u);
  const test::DenseModel shape{*inRange(1u, 10u), kv_heads * *inRange(1u, 9u), kv_heads,
                               32 * *inRange(1u, 5u)};
  const ModelSpec model = test::dense_model(shape);
  PlanRequest request = any_request();
  request.types.key = *rc::gen::element<std::string>("bf16", "auto", "q8_0");
  request.types.value = request.types.key;
  const std::vector<std::string> words = {"mha",
                                          "mqa",
                                          "mla:512+64",
                                          "dsa:256",
                                          "csa",
                                          "hca",
                                          "quest",
                                          "moba",
                                          "nsa",
                                          "swa:64",
                                          "multilevel",
                                          "dynamic",
                                          "gqa:" + std::to_string(kv_heads)};
  const auto rows = what_if(model, request, words, {});
  if (!rows) RC_FAIL(rows.error().message);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const WhatIf& row = (*rows)[i];
    RC_ASSERT(row.k_bytes + row.v_bytes + row.other_bytes == row.total_bytes);
    const double share =
        static_cast<double>(row.total_bytes) / static_cast<double>(rows->front().total_bytes);
    RC_ASSERT(std::abs(row.saving_against_mha - (1 - share)) < 1e-12);
    const auto converted = with_architecture(model, words[i], {});
    RC_ASSERT(converted.has_value());
    const Plan plan = planned(*converted, request, {"ideal"});
    RC_ASSERT(plan.engines[0].bytes == row.total_bytes);
    RC_ASSERT(plan.step.read_bytes == row.read_bytes_per_step);
  }
  // The model's own heads are its own plan.
  RC_ASSERT(rows->back().total_bytes == planned(model, request, {"ideal"}).engines[0].bytes);
}

}  // namespace
}  // namespace kvarto
