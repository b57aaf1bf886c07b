#include "kvarto/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan_models.h"

namespace kvarto {
namespace {

using test::dense;
using test::dense_model;
using test::model_of;
using test::uniform_model;

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kGiB = 1u << 30;

Plan planned(const ModelSpec& model, const PlanRequest& request,
             const std::vector<std::string>& engines = {"ideal"}) {
  auto result = plan(model, request, engines);
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  return result ? *result : Plan{};
}

std::uint64_t ideal_bytes(const ModelSpec& model, std::uint64_t context,
                          const CacheTypes& types = {}) {
  return planned(model, {.context = context, .types = types}).engines.at(0).bytes;
}

std::uint64_t ledger_bytes(const EnginePlan& plan, Cause cause) {
  std::uint64_t bytes = 0;
  for (const LedgerEntry& entry : plan.ledger) bytes += entry.cause == cause ? entry.bytes : 0;
  return bytes;
}

std::string error_of(const ModelSpec& model, const PlanRequest& request,
                     const std::vector<std::string>& engines = {"ideal"}) {
  auto result = plan(model, request, engines);
  return result ? "" : result.error().message;
}

// ---- Published numbers ----

// arXiv 2505.09343, table of bf16 bytes a token.
TEST(Plan, GivesThePublishedSlopesOfDenseModels) {
  EXPECT_EQ(planned(dense_model(test::kQwen25_72B), {}).sequence.slope_bytes_per_token, 327'680.0);
  EXPECT_EQ(planned(dense_model(test::kLlama31_405B), {}).sequence.slope_bytes_per_token,
            516'096.0);
}

// 2 x 2048 x 32 x 128 x 2 bytes = 32 MiB a layer, 16 KiB a token and layer.
TEST(Plan, GivesLlama2OneGibibyteAt2048Tokens) {
  const ModelSpec model = dense_model(test::kLlama2_7B);
  EXPECT_EQ(ideal_bytes(model, 2048), kGiB);
  EXPECT_EQ(ideal_bytes(model, 4096), 2 * kGiB);
  EXPECT_EQ(ideal_bytes(uniform_model(dense(test::kLlama2_7B), 1), 2048), 32 * kMiB);
  EXPECT_EQ(planned(model, {}).sequence.slope_bytes_per_token, 524'288.0);
}

// arXiv 2309.06180: 800 KiB a token, 1.6 GB at 2048.
TEST(Plan, GivesOpt13BThePaperOfVllmsSize) {
  const ModelSpec model = dense_model({40, 40, 40, 128});
  EXPECT_EQ(planned(model, {}).sequence.slope_bytes_per_token, 819'200.0);
  EXPECT_EQ(ideal_bytes(model, 2048), 1'677'721'600u);
}

// gpt-oss-20b, 8192 x 32 sequences: 12 of 24 layers with a window of 128, 8 KV heads of 64.
TEST(Plan, FreesTheWindowsOfGptOss) {
  const test::DenseModel shape{24, 64, 8, 64};
  std::vector<LayerSpec> layers;
  for (int i = 0; i < 24; ++i) layers.push_back(dense(shape, i % 2 == 0 ? 128 : 0));
  const PlanRequest request{.context = 8192, .num_sequences = 32};
  EXPECT_EQ(planned(dense_model(shape), request).engines[0].bytes, 12 * kGiB);
  const double gib =
      static_cast<double>(planned(model_of(layers), request).engines[0].bytes) / kGiB;
  EXPECT_NEAR(gib, 6.09, 0.005);
}

// gpt-oss-120b at 131,072 tokens, bf16: 9.66 GB with all 36 layers full, 4.84 GB with windows.
TEST(Plan, GivesGptOss120bBothPublishedSizes) {
  const test::DenseModel shape{36, 64, 8, 64};
  std::vector<LayerSpec> layers;
  for (int i = 0; i < 36; ++i) layers.push_back(dense(shape, i % 2 == 0 ? 128 : 0));
  EXPECT_NEAR(static_cast<double>(ideal_bytes(dense_model(shape), 131'072)) / 1e9, 9.66, 0.005);
  EXPECT_NEAR(static_cast<double>(ideal_bytes(model_of(layers), 131'072)) / 1e9, 4.84, 0.005);
}

// Qwen3.6-27B, 16 attention layers of 4 KV heads x 256: 16,384 MiB at 262,144 cells.
TEST(Plan, GivesTheLoggedSizeOfQwen36sAttentionLayers) {
  EXPECT_EQ(ideal_bytes(dense_model({16, 24, 4, 256}), 262'144, {"f16", "f16", ""}), 16'384 * kMiB);
}

// Llama-3-8B shape at 2,048 tokens, K and V of different types (ik_llama.cpp logs).
TEST(Plan, TakesDifferentTypesForKAndV) {
  const ModelSpec model = dense_model(test::kLlama31_8B);
  EXPECT_EQ(ideal_bytes(model, 2048, {"q8_0", "iq4_nl", ""}), 104 * kMiB);
  EXPECT_EQ(ideal_bytes(model, 2048, {"q5_1", "q5_0", ""}), 92 * kMiB);
}

// arXiv 2405.04434: 576 elements a token and layer, "GQA with 2.25 groups"; 93.3 % less than
// DeepSeek-67B (95 layers, GQA-8) with the 6 bits of its deployment, 82.2 % at equal width.
// Three layers of 8 heads x 128: 2,048 bytes of K and as many of V in bf16; q8_0 34 bytes for 32
// elements, q4_0 18.
TEST(Plan, TakesTypesOfSomeLayersAlone) {
  const ModelSpec model = dense_model({3, 32, 8, 128});
  PlanRequest request{.context = 1000, .layer_types = {{{0, 2}, {"q8_0", "q4_0", ""}}}};
  const std::uint64_t bytes = 1000 * (4096 + 2 * 8 * 4 * (34 + 18));
  EXPECT_EQ(planned(model, request).engines.at(0).bytes, bytes);
  EXPECT_EQ(planned(model, request).step.read_bytes, bytes);
  // The later words hold where layers are named twice.
  request.layer_types.push_back({{2}, {"bf16", "bf16", ""}});
  EXPECT_EQ(planned(model, request).engines.at(0).bytes, 1000u * (2 * 4096 + 8 * 4 * (34 + 18)));
  const auto refused = plan(model, request, {"llama.cpp"});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("llama.cpp: found types by layer"));
  request.layer_types.push_back({{3}, {"bf16", "bf16", ""}});
  EXPECT_FALSE(plan(model, request, {"ideal"}));
}

TEST(Plan, GivesDeepSeekV2ThePapersSavings) {
  const double v2 =
      planned(uniform_model(mla_layer(test::kDeepSeekV3), 60), {}).sequence.slope_bytes_per_token;
  EXPECT_EQ(v2, 34'560.0 * 2);
  EXPECT_DOUBLE_EQ(v2 / planned(dense_model({60, 128, 1, 128}), {}).sequence.slope_bytes_per_token,
                   2.25);
  const double v67 = planned(dense_model({95, 64, 8, 128}), {}).sequence.slope_bytes_per_token;
  EXPECT_NEAR(1 - v2 * 6 / 16 / v67, 0.933, 5e-4);
  EXPECT_NEAR(1 - v2 / v67, 0.822, 5e-4);
}

// arXiv 2505.09343 and the logs of llama.cpp pull request 11446.
TEST(Plan, GivesDeepSeekV3ThePublishedAndTheLoggedSizes) {
  const ModelSpec model = test::deepseek_v3();
  EXPECT_EQ(planned(model, {}).sequence.slope_bytes_per_token, 70'272.0);
  EXPECT_EQ(ideal_bytes(model, 32'768, {"f16", "f16", ""}), 2196 * kMiB);
  EXPECT_EQ(ideal_bytes(model, 20'480, {"f16", "f16", ""}), 1372 * kMiB + kMiB / 2);
  // Logs round to 0.01 MiB.
  const auto mib_at = [&](std::uint64_t context) {
    return static_cast<double>(ideal_bytes(model, context, {"q8_0", "q8_0", ""})) / kMiB;
  };
  EXPECT_NEAR(mib_at(32'768), 1166.62, 0.0051);
  EXPECT_NEAR(mib_at(163'840), 5833.12, 0.0051);
}

// FlashMLA's FP8 blog: 62 layers, 131,072 tokens, bf16: 8.72 GiB.
TEST(Plan, GivesTheLatentSizeOfFlashMlasBlog) {
  const ModelSpec model = uniform_model(mla_layer(test::kDeepSeekV3), 62);
  EXPECT_NEAR(static_cast<double>(ideal_bytes(model, 131'072)) / kGiB, 8.72, 0.005);
}

// SGLang pull request 11309: 656 + 132 bytes a token and layer, 61 layers; its "GB" are GiB.
TEST(Plan, GivesDeepSeekV32TheSizesOfSglangsLogs) {
  const ModelSpec model = test::deepseek_v32();
  const CacheTypes packed{"fp8_ds_mla", "fp8_ds_mla", ""};
  EXPECT_EQ(planned(model, {.types = packed}).sequence.slope_bytes_per_token, 48'068.0);
  EXPECT_NEAR(static_cast<double>(ideal_bytes(model, 975'424, packed)) / kGiB, 43.67, 0.005);
  const EnginePlan ideal = planned(model, {.context = 1'462'784, .types = packed}).engines[0];
  EXPECT_NEAR(static_cast<double>(ideal.bytes) / kGiB, 65.48, 0.01);
  EXPECT_NEAR(static_cast<double>(ideal.bytes - ledger_bytes(ideal, Cause::kIndexer)) / kGiB, 54.51,
              0.01);
  // bf16 latent, FP8 index keys.
  EXPECT_EQ(planned(model, {.types = {"bf16", "bf16", "fp8"}}).sequence.slope_bytes_per_token,
            78'324.0);
}

// arXiv 2606.19348: 584-byte rows, FP4 index keys.
TEST(Plan, GivesDeepSeekV4SlopesAndConstants) {
  const CacheTypes release{"auto", "auto", ""};
  const auto cost = [&](const ModelSpec& model) {
    return planned(model, {.context = 1u << 20, .types = release}).sequence;
  };
  const SequenceCost flash = cost(test::deepseek_v4(test::kV4Flash));
  const SequenceCost pro = cost(test::deepseek_v4(test::kV4Pro));
  EXPECT_DOUBLE_EQ(flash.slope_bytes_per_token, 3514.25);
  EXPECT_NEAR(pro.slope_bytes_per_token, 5031.44, 0.005);
  EXPECT_EQ(flash.fixed_bytes, 3'214'336u + 12'206'080);
  EXPECT_EQ(pro.fixed_bytes, 4'559'872u + 18'710'528);
  const double v32 = planned(test::deepseek_v32(), {.types = {"fp8_ds_mla", "fp8_ds_mla", ""}})
                         .sequence.slope_bytes_per_token;
  EXPECT_NEAR(pro.slope_bytes_per_token / v32, 0.1047, 5e-5);    // the paper: 10 %
  EXPECT_NEAR(flash.slope_bytes_per_token / v32, 0.0731, 5e-5);  // the paper: 7 %
  EXPECT_NEAR(v32 / flash.slope_bytes_per_token, 13.678, 5e-4);
  // About 2 % of GQA with 8 heads of 128 in bf16.
  const double gqa = planned(dense_model({61, 64, 8, 128}), {}).sequence.slope_bytes_per_token;
  EXPECT_NEAR(pro.slope_bytes_per_token / gqa, 0.0201, 5e-5);
}

// arXiv 2609.19969: 890 bytes a token, 3.95 times less than V4-Flash.
TEST(Plan, GivesDeepSeekV41ThePapersSlope) {
  const CacheTypes release{"auto", "auto", ""};
  const Plan plan = planned(test::deepseek_v41(), {.types = release});
  EXPECT_DOUBLE_EQ(plan.sequence.slope_bytes_per_token, 890.0);
  EXPECT_NEAR(3514.25 / plan.sequence.slope_bytes_per_token, 3.95, 0.005);
}

// ---- Context, engines, errors ----

TEST(Plan, TakesTheModelsMaximumWhenItIsBelowTheDefault) {
  const Plan small = planned(uniform_model(dense(test::kLlama2_7B), 1, 4096), {});
  EXPECT_EQ(small.context, 4096u);
  EXPECT_TRUE(small.is_default_context);
  ASSERT_EQ(small.notes.size(), 1u);
  EXPECT_THAT(small.notes[0], testing::HasSubstr("the model's maximum"));
  const Plan large = planned(uniform_model(dense(test::kLlama2_7B), 1, 131'072), {});
  EXPECT_EQ(large.context, 32'768u);
  EXPECT_THAT(large.notes.at(0), testing::HasSubstr("131072"));
}

TEST(Plan, AcceptsAContextAboveTheModelsMaximumWithANote) {
  const ModelSpec model = uniform_model(dense(test::kLlama2_7B), 1, 4096);
  const Plan plan = planned(model, {.context = 8192});
  EXPECT_EQ(plan.context, 8192u);
  EXPECT_FALSE(plan.is_default_context);
  EXPECT_THAT(plan.notes.at(0), testing::HasSubstr("above the model's maximum, 4096"));
  EXPECT_TRUE(planned(model, {.context = 4096}).notes.empty());
}

TEST(Plan, RefusesUnknownEnginesProfilesAndTypesByName) {
  const ModelSpec model = dense_model(test::kLlama2_7B);
  EXPECT_THAT(error_of(model, {}, {"nosuch"}), testing::HasSubstr("\"nosuch\""));
  EXPECT_THAT(error_of(model, {}, {"ideal@7.7"}), testing::HasSubstr("\"7.7\""));
  EXPECT_THAT(error_of(model, {.types = {"q9_9", "bf16", ""}}), testing::HasSubstr("\"q9_9\""));
  EXPECT_EQ(planned(model, {}, {"ideal@" + engine_profiles("ideal").at(0)}).engines.size(), 1u);
}

TEST(Plan, RefusesSizesThatOverflowNamingTheField) {
  const ModelSpec model = dense_model(test::kLlama31_405B);
  EXPECT_THAT(error_of(model, {.context = ~std::uint64_t{0}}), testing::StartsWith("context "));
  EXPECT_THAT(error_of(model, {.num_sequences = 0}), testing::StartsWith("number of sequences 0"));
  EXPECT_THAT(
      error_of(model, {.context = std::uint64_t{1} << 50, .num_sequences = std::uint64_t{1} << 32}),
      testing::AllOf(testing::HasSubstr("stream k"), testing::HasSubstr("overflow")));
  LayerSpec wide = dense(test::kLlama2_7B);
  wide.streams[0].fields[0].heads = ~0u;
  wide.streams[0].fields[0].width = ~0u;
  EXPECT_THAT(error_of(uniform_model(wide, 1), {}, {"kvarto"}),
              testing::HasSubstr("stream k, field k"));
}

TEST(Plan, PlansAllEnginesAndKeepsRefusalsApart) {
  const ModelSpec model = dense_model(test::kLlama31_8B);
  const Plan all = planned(model, {.context_parallel = 2}, {"all"});
  EXPECT_EQ(all.engines.size() + all.refusals.size(), engine_names().size());
  const auto of_kvarto = std::find_if(all.refusals.begin(), all.refusals.end(),
                                      [](const auto& r) { return r.engine == "kvarto"; });
  ASSERT_NE(of_kvarto, all.refusals.end());
  EXPECT_THAT(of_kvarto->error.message, testing::HasSubstr("context parallel size 2"));
  EXPECT_FALSE(plan(model, {.context_parallel = 2}, {"kvarto"}).has_value());
}

// ---- Causes ----

TEST(Plan, KeepsScalesApartFromPayload) {
  // q8_0: 32 int8 and one f16 in a block, so scales are 2 / 34 of the bytes.
  const Plan plan =
      planned(dense_model(test::kLlama31_8B), {.context = 1024, .types = {"q8_0", "q8_0", ""}});
  const EnginePlan& ideal = plan.engines[0];
  EXPECT_EQ(ledger_bytes(ideal, Cause::kScales) * 16, ledger_bytes(ideal, Cause::kPayload));
}

TEST(Plan, CallsHeadsBeyondTheRanksShareReplication) {
  // 8 KV heads on 16 ranks: one head each, twice the share.
  const ModelSpec model = dense_model(test::kLlama31_8B);
  const Plan plan = planned(model, {.context = 1024, .tensor_parallel = 16}, {"ideal", "kvarto"});
  for (const EnginePlan& engine : plan.engines) {
    EXPECT_EQ(ledger_bytes(engine, Cause::kReplication), 8 * kMiB) << engine.engine;
    EXPECT_EQ(ledger_bytes(engine, Cause::kPayload), 8 * kMiB) << engine.engine;
  }
  // 3 heads on 2 ranks: the larger rank has 2 where 1.5 is its share.
  const ModelSpec odd = dense_model({1, 3, 3, 64});
  const EnginePlan rank = planned(odd, {.context = 1024, .tensor_parallel = 2}).engines[0];
  EXPECT_EQ(rank.bytes, 1024u * 2 * 2 * 64 * 2);
  EXPECT_EQ(ledger_bytes(rank, Cause::kReplication), 1024u * 2 * 64);
}

TEST(Plan, RoundsToWholeBlocksOnTheKvartoEngine) {
  // 1 layer, 1 head x 64, bf16: a row of K and V is 256 bytes. 17 tokens take 2 blocks of 16.
  const ModelSpec model = dense_model({1, 1, 1, 64});
  const EnginePlan kvarto = planned(model, {.context = 17}, {"kvarto"}).engines[0];
  EXPECT_EQ(kvarto.blocks, 2u);
  EXPECT_EQ(ledger_bytes(kvarto, Cause::kPayload), 17u * 256);
  EXPECT_EQ(ledger_bytes(kvarto, Cause::kBlockRounding), 15u * 256);
  EXPECT_EQ(ledger_bytes(kvarto, Cause::kMetadata), 2u * 12);
  EXPECT_EQ(ledger_bytes(kvarto, Cause::kPadding), 0u);  // 8192 bytes are whole pages
  EXPECT_EQ(kvarto.bytes, 8192u + 24);
}

TEST(Plan, ShowsTheSlackOfAWindowOnTheKvartoEngine) {
  // A window of 128 while 64 tokens are appended at once spans up to 191 rows, so 13 blocks of 16
  // at the worst offset where 8 would hold the window.
  const ModelSpec model = uniform_model(dense({1, 1, 1, 64}, 128), 1);
  const PlanRequest request{.context = 4096, .micro_batch = 64};
  const EnginePlan kvarto = planned(model, request, {"kvarto"}).engines[0];
  EXPECT_EQ(kvarto.blocks, 13u);
  EXPECT_EQ(ledger_bytes(kvarto, Cause::kPayload), 128u * 256);
  EXPECT_EQ(ledger_bytes(kvarto, Cause::kWindowSlack), 5u * 16 * 256);
}

TEST(Plan, TellsHowManySequencesTheMemoryHolds) {
  const ModelSpec model = dense_model(test::kLlama31_8B);  // 1 GiB at 8,192 tokens
  const PlanRequest request{.context = 8192, .kv_memory_bytes = 10 * kGiB};
  const Plan plan = planned(model, request, {"ideal", "kvarto"});
  EXPECT_DOUBLE_EQ(plan.engines[0].max_concurrency.value(), 10.0);
  EXPECT_EQ(plan.engines[0].tokens, 81'920u);
  EXPECT_FALSE(plan.engines[0].blocks.has_value());
  EXPECT_LT(plan.engines[1].max_concurrency.value(), 10.0);
  EXPECT_EQ(plan.engines[1].blocks, 5119u);  // 512 blocks of 16 a sequence, 12 bytes each beside
  EXPECT_FALSE(planned(model, {.context = 8192}).engines[0].tokens.has_value());
}

TEST(Plan, CountsDraftLayersAndTokensInFlight) {
  ModelSpec model = dense_model(test::kLlama31_8B);
  const std::uint64_t without = ideal_bytes(model, 1024);
  const Plan eagle = planned(model, {.context = 1024, .draft_layers = 1});
  EXPECT_EQ(eagle.engines[0].bytes, without / 32 * 33);
  EXPECT_EQ(ledger_bytes(eagle.engines[0], Cause::kDraft), without / 32);
  EXPECT_THAT(eagle.notes.at(0), testing::HasSubstr("1 of 1 draft layers"));

  model.draft_groups = group_layers({dense({1, 8, 1, 64})});
  const Plan own = planned(model, {.context = 1024, .draft_layers = 1});
  EXPECT_EQ(ledger_bytes(own.engines[0], Cause::kDraft), 1024u * 256);
  EXPECT_TRUE(own.notes.empty());

  const ModelSpec window = uniform_model(dense({1, 1, 1, 64}, 128), 1);
  const Plan in_flight = planned(window, {.context = 1024, .draft_tokens = 4});
  EXPECT_EQ(in_flight.engines[0].bytes, (128u + 4) * 256);
}

// KIVI, 2 bits in groups of 32, residual 128: beyond the tail a head of 128 takes 32 + 16 bytes for
// K and V each; the f16 tails hold 159 and 128 tokens, and as many as the residual are unborn.
TEST(Plan, TakesUnbornRowsOffTheConstantPart) {
  const ModelSpec model = uniform_model(
      tail_quantised_layer({.dense = {.q_heads = 8, .kv_heads = 1, .qk_dim = 128, .v_dim = 128}}),
      1);
  const SequenceCost cost = planned(model, {.context = 4096}).sequence;
  EXPECT_EQ(cost.slope_bytes_per_token, 48.0 + 48.0);
  EXPECT_EQ(cost.fixed_bytes, (159u + 128) * 256 - 128 * (48 + 48));
  EXPECT_EQ(cost.bytes, cost.fixed_bytes + 4096u * 96);
}

// ---- Inverse questions ----

TEST(LargestContext, FillsTheMemoryToTheToken) {
  const ModelSpec model = dense_model(test::kLlama31_8B);  // 131,072 bytes a token
  EXPECT_EQ(largest_context(model, {}, "ideal", kGiB, 1'000'000).value(), 8192u);
  EXPECT_EQ(largest_context(model, {}, "ideal", kGiB - 1, 1'000'000).value(), 8191u);
  EXPECT_EQ(largest_context(model, {.num_sequences = 2}, "ideal", kGiB, 1'000'000).value(), 4096u);
  EXPECT_EQ(largest_context(model, {}, "ideal", kGiB, 1000).value(), 1000u);
  EXPECT_EQ(largest_context(model, {}, "ideal", 131'071, 1000).value(), 0u);
  EXPECT_FALSE(largest_context(model, {}, "nosuch", kGiB, 1000).has_value());
}

TEST(LargestNumSequences, FillsTheMemoryToTheSequence) {
  const ModelSpec model = dense_model(test::kLlama31_8B);
  EXPECT_EQ(largest_num_sequences(model, {.context = 8192}, "ideal", 10 * kGiB).value(), 10u);
  EXPECT_EQ(largest_num_sequences(model, {.context = 8192}, "ideal", 10 * kGiB - 1).value(), 9u);
  EXPECT_EQ(largest_num_sequences(model, {.context = 8192}, "kvarto", 10 * kGiB).value(), 9u);
}

TEST(SmallestDevice, IsTheOneWithTheLeastMemoryThatHoldsThem) {
  const std::vector<HardwareSpec> devices = {{.name = "c", .memory_bytes = 80},
                                             {.name = "a", .memory_bytes = 24},
                                             {.name = "b", .memory_bytes = 48}};
  EXPECT_EQ(smallest_device(24, devices)->name, "a");
  EXPECT_EQ(smallest_device(25, devices)->name, "b");
  EXPECT_FALSE(smallest_device(81, devices).has_value());
}

// ---- Work of a step ----

TEST(StepCost, ReadsEveryVisibleRowAndComputesOnEveryHead) {
  const Plan plan = planned(dense_model(test::kLlama31_8B), {.context = 1024, .num_sequences = 3});
  EXPECT_EQ(plan.step.read_bytes, 3u * 1024 * 131'072);
  EXPECT_DOUBLE_EQ(plan.step.decode_flop, 3.0 * 32 * 32 * 1024 * 2 * (128 + 128));
  // Causal: 1024 x 1025 / 2 pairs of query and row.
  EXPECT_DOUBLE_EQ(plan.step.prefill_flop, 32.0 * 32 * (1024.0 * 1025 / 2) * 2 * (128 + 128));
  EXPECT_EQ(plan.step.prefill_read_bytes, 1024u * 131'072);
}

TEST(StepCost, CountsBorrowedRowsAsReadsButNotAsBytes) {
  LayerSpec owner = dense({1, 8, 8, 64});
  LayerSpec borrower = owner;
  for (Stream& stream : borrower.streams) stream.owner_layer = 0;
  const Plan plan = planned(model_of({owner, borrower}), {.context = 100});
  EXPECT_EQ(plan.engines[0].bytes, 100u * 8 * 64 * 2 * 2);
  EXPECT_EQ(plan.step.read_bytes, 2 * plan.engines[0].bytes);
}

// DSA: 132 bytes of every token and 656 of at most 2,048; index FLOP on every key.
TEST(StepCost, ReadsAllIndexKeysButOnlyTheSelectedRows) {
  const ModelSpec model =
      uniform_model(dsa_layer(test::kDeepSeekV3, {.heads = 64, .dim = 128, .top_k = 2048}), 1);
  const PlanRequest request{.context = 10'000, .types = {"fp8_ds_mla", "fp8_ds_mla", ""}};
  const StepCost step = planned(model, request).step;
  EXPECT_EQ(step.read_bytes, 10'000u * 132 + 2048u * 656);
  EXPECT_DOUBLE_EQ(step.decode_flop, 128.0 * 2048 * 2 * (576 + 512) + 10'000.0 * 2 * 64 * 128);
  // Queries 1 .. 2048 see their own prefix, the others 2,048 rows each.
  const double rows = 2048.0 * 2049 / 2 + (10'000.0 - 2048) * 2048;
  EXPECT_DOUBLE_EQ(step.prefill_flop,
                   128.0 * rows * 2 * (576 + 512) + (10'000.0 * 10'001 / 2) * 2 * 64 * 128);
}

// arXiv 2502.11089: token equivalents read at 8k, 16k, 32k and 64k.
TEST(StepCost, ReadsThePublishedVolumesOfNsa) {
  const auto model = geometry_model("nsa", {.q_heads = 64, .kv_heads = 4, .head_dim = 128}, 1);
  ASSERT_TRUE(model.has_value());
  const std::uint64_t row = 2u * 4 * 128 * 2;
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> published = {
      {8192, 2048}, {16'384, 2560}, {32'768, 3584}, {65'536, 5632}};
  for (const auto& [context, tokens] : published) {
    EXPECT_EQ(planned(*model, {.context = context}).step.read_bytes, tokens * row) << context;
  }
}

// A window of 100 in a prefill of 300: 1 + ... + 100, then 200 queries of 100 rows.
TEST(StepCost, SeesNoMoreThanTheWindowInAPrefill) {
  const ModelSpec model = uniform_model(dense({1, 1, 1, 64}, 100), 1);
  EXPECT_DOUBLE_EQ(planned(model, {.context = 300}).step.prefill_flop,
                   (5050.0 + 200 * 100) * 2 * 128);
}

// Quest: 8 blocks' summaries of a minimum and a maximum, and 64 rows of the budget.
TEST(StepCost, CountsTheSummariesOfBlocks) {
  const auto model = geometry_model("quest:64", {.q_heads = 4, .kv_heads = 2, .head_dim = 32}, 1);
  ASSERT_TRUE(model.has_value());
  const StepCost step = planned(*model, {.context = 128}).step;
  EXPECT_EQ(step.read_bytes, 64u * 2 * 2 * 32 * 2 + 8u * 2 * 2 * 32 * 2);
  EXPECT_DOUBLE_EQ(step.decode_flop, 4.0 * 64 * 2 * (32 + 32) + 4.0 * 8 * 2 * (32 + 32));
}

TEST(TimeFloor, SaysWhichOfMemoryAndArithmeticBinds) {
  const HardwareSpec device{.bandwidth_bytes_per_s = 1e12, .flop_per_s_16bit = 1e14};
  const StepCost step{.read_bytes = 2'000'000'000,
                      .decode_flop = 1e10,
                      .prefill_flop = 5e14,
                      .prefill_read_bytes = 1'000'000'000};
  EXPECT_DOUBLE_EQ(decode_floor(step, device).seconds(), 2e-3);
  EXPECT_TRUE(decode_floor(step, device).is_memory_bound());
  EXPECT_DOUBLE_EQ(prefill_floor(step, device).seconds(), 5.0);
  EXPECT_FALSE(prefill_floor(step, device).is_memory_bound());
}

}  // namespace
}  // namespace kvarto
