#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "kvarto/plan.h"
#include "plan_models.h"

namespace kvarto {
namespace {

using test::dense;
using test::dense_model;
using test::model_of;

constexpr std::uint64_t kMiB = 1u << 20;

std::vector<WhatIf> rows_of(const ModelSpec& model, const PlanRequest& request,
                            const std::vector<std::string>& words,
                            const WhatIfDefaults& defaults = {}) {
  auto rows = what_if(model, request, words, defaults);
  EXPECT_TRUE(rows.has_value()) << (rows ? "" : rows.error().message);
  return rows ? *rows : std::vector<WhatIf>(words.size());
}

std::string error_of(std::string_view word, const WhatIfDefaults& defaults = {}) {
  auto result = with_architecture(dense_model(test::kLlama31_8B), word, defaults);
  return result ? "" : result.error().message;
}

// 4096 tokens of one Llama-2-7B layer: 64 MiB as MHA, 16 MiB with 8 KV heads, 4.5 MiB as MLA.
TEST(WhatIf, GivesTheFiguresThatArticlesGetWrong) {
  const ModelSpec layer = test::uniform_model(dense(test::kLlama2_7B), 1);
  const auto rows = rows_of(layer, {.context = 4096}, {"mha", "gqa:8", "mqa", "mla:512+64"});
  EXPECT_EQ(rows[0].k_bytes, 32 * kMiB);
  EXPECT_EQ(rows[0].v_bytes, 32 * kMiB);
  EXPECT_EQ(rows[0].other_bytes, 0u);
  EXPECT_EQ(rows[0].saving_against_mha, 0.0);
  EXPECT_EQ(rows[1].total_bytes, 16 * kMiB);
  EXPECT_DOUBLE_EQ(rows[1].saving_against_mha, 0.75);
  EXPECT_EQ(rows[2].total_bytes, 2 * kMiB);
  EXPECT_EQ(rows[3].other_bytes, 4 * kMiB + kMiB / 2);
  EXPECT_EQ(rows[3].k_bytes + rows[3].v_bytes, 0u);
  EXPECT_NEAR(rows[3].saving_against_mha, 0.93, 0.005);
  EXPECT_EQ(rows[3].read_bytes_per_step, rows[3].total_bytes);
}

// A number that a word leaves open changes the layers; every other number leaves them as they are.
TEST(WhatIf, NamesTheNumbersThatAWordLeavesOpen) {
  const ModelSpec model = dense_model(test::kLlama31_8B);
  const std::vector<std::pair<std::string_view, WhatIfDefaults>> numbers = {
      {"q-heads", {.q_heads = 64}},
      {"kv-heads", {.kv_heads = 4}},
      {"head-dim", {.head_dim = 96}},
      {"v-head-dim", {.v_head_dim = 64}},
      {"latent-dim", {.latent_dim = 256}},
      {"rope-dim", {.rope_dim = 32}},
      {"index-heads", {.index_heads = 16}},
      {"index-dim", {.index_dim = 64}},
      {"top-k", {.top_k = 640}},
      {"window", {.window = 768}},
      {"group", {.group = 32}},
      {"ratio", {.ratio = 0.5}}};
  for (const char* word : {"mha",
                           "mqa",
                           "gqa",
                           "gqa:2",
                           "mla",
                           "mla:384+16",
                           "dsa",
                           "dsa:1024",
                           "csa",
                           "hca",
                           "multilevel",
                           "multilevel:8",
                           "multilevel:8:128",
                           "dynamic",
                           "dynamic:0.125",
                           "quest",
                           "quest:256",
                           "moba",
                           "nsa",
                           "swa",
                           "swa:100"}) {
    const auto open = open_numbers(word).value();
    const ModelSpec plain = with_architecture(model, word, {}).value();
    for (const auto& [name, defaults] : numbers) {
      const ModelSpec changed = with_architecture(model, word, defaults).value();
      const LayerGroup& a = plain.groups.front();
      const LayerGroup& b = changed.groups.front();
      const bool is_same = a.streams == b.streams && a.query == b.query;
      const bool is_open = std::find(open.begin(), open.end(), name) != open.end();
      EXPECT_EQ(is_open, !is_same) << word << " " << name;
    }
  }
  EXPECT_FALSE(open_numbers("nonsense").has_value());
}

// DeepSeek-V2-Lite: 27 layers, 16 heads of 192 and 128; 163,840 tokens f16 take 42.19 GiB expanded
// and 4.75 GiB as latent (llama.cpp issue 8817). V3 at 512 tokens: K 1464 and V 976 MiB (log).
TEST(WhatIf, ExpandsALatentToTheHeadsItAbsorbed) {
  const ModelSpec lite = test::uniform_model(
      mla_layer({.q_heads = 16, .latent_dim = 512, .rope_dim = 64, .nope_dim = 128, .v_dim = 128}),
      27);
  const PlanRequest request{.context = 163'840, .types = {"f16", "f16", ""}};
  const auto rows = rows_of(lite, request, {"mha", "mla"});
  EXPECT_NEAR(static_cast<double>(rows[0].total_bytes) / (1u << 30), 42.19, 0.005);
  EXPECT_NEAR(static_cast<double>(rows[1].total_bytes) / (1u << 30), 4.75, 0.005);
  const auto v3 = rows_of(test::deepseek_v3(), {.context = 512}, {"mha"});
  EXPECT_EQ(v3[0].k_bytes, 1464 * kMiB);
  EXPECT_EQ(v3[0].v_bytes, 976 * kMiB);
}

TEST(WhatIf, AddsTheIndexerToTheLatent) {
  const auto rows =
      rows_of(test::deepseek_v3(), {.context = 10'000, .types = {"fp8_ds_mla", "fp8_ds_mla", ""}},
              {"mla", "dsa", "mha"});
  EXPECT_EQ(rows[0].total_bytes, 10'000u * 61 * 656);
  EXPECT_EQ(rows[1].total_bytes, 10'000u * 61 * 788);
  EXPECT_EQ(rows[1].read_bytes_per_step, 61u * (10'000u * 132 + 2048u * 656));
  EXPECT_EQ(rows[1].architecture, "dsa:2048");
  // K and V have no such form: one byte an element, said in a note.
  EXPECT_EQ(rows[2].total_bytes, std::uint64_t{10'000} * 61 * 128 * (192 + 128));
  EXPECT_THAT(rows[2].notes, testing::ElementsAre(testing::HasSubstr("fp8_ds_mla")));
}

TEST(WhatIf, KeepsTheTokensUnderTheAggregatesAndUnderTheMask) {
  const PlanRequest request{.context = 4096};
  const auto rows = rows_of(dense_model(test::kLlama31_8B), request,
                            {"gqa", "multilevel:16", "multilevel:16:256", "dynamic:0.25"});
  EXPECT_EQ(rows[0].architecture, "gqa:8");
  EXPECT_EQ(rows[0].total_bytes, 512 * kMiB);
  EXPECT_EQ(rows[1].total_bytes, 512 * kMiB + 512 * kMiB / 16);
  EXPECT_EQ(rows[1].k_bytes, 256 * kMiB);
  // With a window, level 0 holds 256 + 15 tokens.
  EXPECT_EQ(rows[2].k_bytes + rows[2].v_bytes, 271u * 131'072);
  EXPECT_EQ(rows[2].architecture, "multilevel:16:256");
  EXPECT_EQ(rows[3].k_bytes + rows[3].v_bytes, 512 * kMiB);
  EXPECT_GT(rows[3].other_bytes, 0u);
  EXPECT_EQ(rows[3].architecture, "dynamic:0.25");
}

// DeepSeek-V4-Flash's layers in its own row format.
TEST(WhatIf, BuildsCompressedLayersLikeV4Flash) {
  const ModelSpec one = test::uniform_model(dense(test::kLlama31_8B), 1);
  const PlanRequest request{.context = 128 * 100, .types = {"auto", "auto", ""}};
  const auto rows = rows_of(one, request, {"csa", "hca"});
  EXPECT_EQ(rows[0].total_bytes, 128u * 584 + 3200u * (584 + 68) + 65'536 + 16'384);
  EXPECT_EQ(rows[1].total_bytes, 128u * 584 + 100u * 584 + 524'288);
  EXPECT_EQ(rows[1].read_bytes_per_step, 128u * 584 + 100u * 584);
}

TEST(WhatIf, AcceptsTheNamesOfPopularArticlesWithANote) {
  const auto rows = rows_of(
      dense_model(test::kLlama31_8B), {.context = 1024},
      {"multi-level-attention", "dynamic-sparse-attention:0.5", "multi-head-latent-attention"});
  EXPECT_EQ(rows[0].architecture, "multilevel:16");
  EXPECT_THAT(rows[0].notes.at(0), testing::HasSubstr("multi-head latent attention"));
  EXPECT_EQ(rows[1].architecture, "dynamic:0.5");
  EXPECT_THAT(rows[1].notes.at(0), testing::HasSubstr("DeepSeek sparse attention"));
  EXPECT_EQ(rows[2].architecture, "mla:512+64");
  EXPECT_EQ(rows[2].notes.size(), 1u);
}

TEST(WhatIf, KeepsStatesAndSaysThatWindowsGo) {
  const LayerSpec state = state_layer({.architecture = "gdn", .state = {{"state", 4, 1000}}});
  const ModelSpec hybrid = model_of({state, dense(test::kLlama31_8B, 128), state});
  const auto rows = rows_of(hybrid, {.context = 1000}, {"mqa"});
  EXPECT_EQ(rows[0].other_bytes, 2u * 4 * 1000 * 4);
  EXPECT_EQ(rows[0].k_bytes, 1000u * 128 * 2);
  EXPECT_THAT(rows[0].notes, testing::ElementsAre(testing::HasSubstr("windows of 1 layers")));
  EXPECT_FALSE(what_if(model_of({state}), {}, {"mqa"}, {}).has_value());
}

TEST(WhatIf, NamesBothNumbersThatDoNotDivide) {
  EXPECT_THAT(error_of("gqa:6"), testing::AllOf(testing::HasSubstr("32 query heads"),
                                                testing::HasSubstr("6 kv heads")));
  EXPECT_EQ(error_of("gqa:16"), "");
}

TEST(WhatIf, RefusesMalformedWordsNamingThem) {
  for (const std::string word : {"",
                                 "mha:2",
                                 "gqa:",
                                 "gqa:0",
                                 "gqa:x",
                                 "gqa:-1",
                                 "gqa:99999999999999999999",
                                 "mla:512",
                                 "mla:512+",
                                 "mla:+64",
                                 "dsa:1.5",
                                 "csa:4",
                                 "multilevel:16:0",
                                 "multilevel:16:8:4",
                                 "dynamic:0",
                                 "dynamic:1.5",
                                 "dynamic:nan",
                                 "quest:0",
                                 "swa: 3",
                                 "MHA",
                                 "transformer"}) {
    EXPECT_THAT(error_of(word), testing::HasSubstr("architecture \"" + word + "\""));
  }
  EXPECT_EQ(error_of("mla:512+0"), "");
  EXPECT_THAT(error_of("mla", {.latent_dim = ~0u}), testing::HasSubstr("latent dim 4294967295"));
  EXPECT_THAT(error_of("hca", {.group = 1u << 30}), testing::HasSubstr("compressor"));
}

TEST(GeometryModel, TakesTheBestKnownModelsNumbers) {
  const auto q_heads = [](std::string_view word) {
    return geometry_model(word, {}, 2).value().groups.at(0).query.q_heads;
  };
  EXPECT_EQ(q_heads("gqa"), 32u);
  EXPECT_EQ(q_heads("mla"), 128u);
  EXPECT_EQ(q_heads("dsa"), 128u);
  EXPECT_EQ(q_heads("csa"), 64u);
  const ModelSpec gqa = geometry_model("gqa", {.q_heads = 64, .kv_heads = 4}, 3).value();
  EXPECT_EQ(gqa.num_layers, 3u);
  EXPECT_EQ(gqa.groups.at(0).layers.size(), 3u);
  EXPECT_EQ(gqa.groups.at(0).streams.at(0).fields.at(0).heads, 4u);
  EXPECT_EQ(gqa.name, "gqa:4");
  const ModelSpec wide = geometry_model("swa", {.head_dim = 192, .v_head_dim = 128}, 1).value();
  EXPECT_EQ(wide.groups.at(0).streams.at(0).fields.at(0).width, 192u);
  EXPECT_EQ(wide.groups.at(0).streams.at(1).fields.at(0).width, 128u);
}

TEST(GeometryModel, RefusesNumbersThatContradictTheWord) {
  const auto error = [](std::string_view word, const WhatIfDefaults& defaults,
                        std::uint32_t layers = 1) {
    auto result = geometry_model(word, defaults, layers);
    return result ? "" : result.error().message;
  };
  EXPECT_THAT(error("mha", {.q_heads = 32, .kv_heads = 8}),
              testing::AllOf(testing::HasSubstr("32"), testing::HasSubstr("8")));
  EXPECT_THAT(error("gqa:4", {.kv_heads = 8}), testing::HasSubstr("found 8"));
  EXPECT_THAT(error("quest", {.q_heads = 6, .kv_heads = 4}),
              testing::HasSubstr("expected a multiple"));
  EXPECT_THAT(error("gqa", {}, 0), testing::HasSubstr("0 layers"));
  EXPECT_EQ(error("mha", {.q_heads = 12}), "");
}

// ---- Reservation ----

// A course notebook on attention memory: 1,120 real tokens; 2,560 reserved contiguously (43.75 %),
// 1,280 in blocks of 128 (87.5 %), 1,120 in blocks of 16 (100 %).
TEST(Reservation, ComparesContiguousWithPaged) {
  const ModelSpec model = dense_model(test::kLlama31_8B);  // 131,072 bytes a token
  const std::vector<std::uint64_t> lengths = {64, 96, 128, 320, 512};
  const auto by_128 = compare_reservation(model, {.block_size = 128}, lengths).value();
  EXPECT_EQ(by_128.contiguous.tokens, 1120u);
  EXPECT_EQ(by_128.contiguous.reserved_tokens, 2560u);
  EXPECT_DOUBLE_EQ(by_128.contiguous.utilisation, 0.4375);
  EXPECT_EQ(by_128.contiguous.wasted_bytes, (2560u - 1120) * 131'072);
  EXPECT_EQ(by_128.paged.reserved_tokens, 1280u);
  EXPECT_DOUBLE_EQ(by_128.paged.utilisation, 0.875);
  EXPECT_EQ(by_128.paged.bytes, 1280u * 131'072);
  const auto by_default = compare_reservation(model, {}, lengths).value();
  EXPECT_EQ(by_default.block_size, 16u);
  EXPECT_DOUBLE_EQ(by_default.paged.utilisation, 1.0);
  EXPECT_EQ(by_default.paged.wasted_bytes, 0u);
}

// Over all lengths of a block, (B - 1) / 2 tokens a sequence are wasted: 7.5 at 16, 31.5 at 64.
TEST(Reservation, WastesHalfABlockOnAverage) {
  const ModelSpec model = dense_model({1, 1, 1, 64});
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t length = 1; length <= 640; ++length) lengths.push_back(length);
  for (const std::uint64_t block : {16u, 64u}) {
    const auto paged = compare_reservation(model, {.block_size = block}, lengths).value().paged;
    EXPECT_DOUBLE_EQ(static_cast<double>(paged.reserved_tokens - paged.tokens) / 640,
                     static_cast<double>(block - 1) / 2);
  }
}

TEST(Reservation, RefusesNoLengthsAndEmptySequences) {
  const ModelSpec model = dense_model({1, 1, 1, 64});
  EXPECT_FALSE(compare_reservation(model, {}, {}).has_value());
  EXPECT_THAT(compare_reservation(model, {}, {5, 0}).error().message,
              testing::HasSubstr("length 0"));
  EXPECT_THAT(compare_reservation(model, {}, {~std::uint64_t{0}}).error().message,
              testing::HasSubstr("18446744073709551615"));
}

}  // namespace
}  // namespace kvarto
