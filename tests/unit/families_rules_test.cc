// The rules by which dense model types read their keys: defaults, windows, owners, drafts; and the
// configs that contradict themselves.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvarto/model_file.h"
#include "unit/cost_sums.h"

namespace kvarto {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

ModelSpec read(const std::string& text) {
  auto model = read_config_json(text, "config.json");
  EXPECT_TRUE(model.has_value()) << text << ": " << (model ? "" : model.error().message);
  return model ? typed(*model) : ModelSpec{};
}

// gemma-3-4b-it's file has neither head counts nor head dim nor context.
TEST(ClassDefaults, AreTakenAndNamed) {
  const ModelSpec model = read(
      R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
          "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}})");
  EXPECT_EQ(slope_of(model), 20480);
  EXPECT_EQ(fixed_of(model), 121634816u);
  EXPECT_EQ(model.max_context, 131072u);
  for (const char* note : {"num_attention_heads: absent, took 8, the default of Gemma3TextConfig",
                           "num_key_value_heads: absent, took 4, the default of Gemma3TextConfig",
                           "head_dim: absent, took 256, the default of Gemma3TextConfig",
                           "max_position_embeddings: absent, took 131072"}) {
    EXPECT_THAT(model.notes, Contains(HasSubstr(note)));
  }
}

TEST(ClassDefaults, DifferForAbsentAndNullKvHeads) {
  const auto mistral = [](const char* kv_heads) {
    return read(fmt::format(
        R"({{"model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32,
             "num_hidden_layers": 32, "sliding_window": null{}}})",
        kv_heads));
  };
  // MistralConfig: 8 if absent, one for each query head if null.
  EXPECT_EQ(slope_of(mistral("")), 131072);
  EXPECT_THAT(mistral("").notes, Contains(HasSubstr("num_key_value_heads: absent, took 8")));
  EXPECT_EQ(slope_of(mistral(", \"num_key_value_heads\": null")), 524288);
}

TEST(ClassDefaults, DifferForAbsentAndNullWindows) {
  const auto mistral = [](const char* window) {
    return read(fmt::format(
        R"({{"model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32,
             "num_key_value_heads": 8, "num_hidden_layers": 32{}}})",
        window));
  };
  EXPECT_EQ(fixed_of(mistral("")), 536870912u);
  EXPECT_THAT(mistral("").notes, Contains(HasSubstr("sliding_window: absent, took 4096")));
  EXPECT_EQ(fixed_of(mistral(", \"sliding_window\": null")), 0u);
}

TEST(KvHeads, AreAsManyAsQueryHeadsWhereAbsentAndTheNoteSaysSo) {
  const ModelSpec model = read(
      R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 16,
          "num_hidden_layers": 8})");
  EXPECT_EQ(slope_of(model), 8 * 64 * 2 * 2);
  EXPECT_THAT(model.notes,
              Contains("num_key_value_heads: absent, took 16, one for each query head"));
}

TEST(Architectures, AreNamedByTheirNumbers) {
  const auto name = [](int heads, int kv_heads, const char* more) {
    return architecture_names(read(fmt::format(
        R"({{"model_type": "mistral", "hidden_size": 512, "num_attention_heads": {},
             "num_key_value_heads": {}, "num_hidden_layers": 2, "sliding_window": null{}}})",
        heads, kv_heads, more)));
  };
  EXPECT_THAT(name(8, 8, ""), ElementsAre("mha"));
  EXPECT_THAT(name(8, 2, ""), ElementsAre("gqa"));
  EXPECT_THAT(name(8, 1, ""), ElementsAre("mqa"));
}

TEST(Windows, BeginAtMaxWindowLayersInQwen2IfAskedFor) {
  const auto qwen = [](const char* wanted) {
    return read(fmt::format(
        R"({{"model_type": "qwen2", "hidden_size": 512, "num_attention_heads": 8,
             "num_key_value_heads": 2, "num_hidden_layers": 10, "sliding_window": 100,
             "max_window_layers": 7, "use_sliding_window": {}}})",
        wanted));
  };
  const ModelSpec windowed = qwen("true");
  ASSERT_EQ(windowed.groups.size(), 2u);
  EXPECT_EQ(windowed.groups[0].architecture, "gqa");
  EXPECT_THAT(windowed.groups[1].layers, ElementsAre(7u, 8u, 9u));
  EXPECT_EQ(words(windowed.groups[1].streams[0]), "window(100) window(100) resident head");
  EXPECT_EQ(qwen("false").groups.size(), 1u);
}

TEST(Windows, LieWhereEveryRulePutsThem) {
  struct Rule {
    const char* type;
    std::vector<std::uint32_t> full;  // of 12 layers
  };
  const Rule rules[] = {{"gemma2", {1, 3, 5, 7, 9, 11}},
                        {"gpt_oss", {1, 3, 5, 7, 9, 11}},
                        {"gemma3_text", {5, 11}},
                        {"cohere2", {3, 7, 11}},
                        {"olmo3", {3, 7, 11}},
                        {"granite_swa", {0, 4, 8}},
                        {"muse_glimmer_text", {3, 7, 11}}};
  for (const Rule& rule : rules) {
    const ModelSpec model = read(fmt::format(
        R"({{"model_type": "{}", "hidden_size": 512, "num_attention_heads": 8, "head_dim": 64,
             "num_key_value_heads": 2, "num_hidden_layers": 12, "sliding_window": 64}})",
        rule.type));
    for (const LayerGroup& group : model.groups) {
      if (group.architecture != "gqa") continue;
      EXPECT_EQ(group.layers, rule.full) << rule.type;
    }
    EXPECT_EQ(model.groups.size(), 2u) << rule.type;
  }
}

TEST(Windows, FollowThePatternKeyOverTheClass) {
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    const ModelSpec model = read(fmt::format(
        R"({{"model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 64,
             "{}": 3}})",
        key));
    ASSERT_EQ(model.groups.size(), 2u);
    EXPECT_THAT(model.groups[1].layers, ElementsAre(2u, 5u));
  }
}

TEST(Windows, ThatNoSequenceCanFillAreNone) {
  const ModelSpec model = read(
      R"({"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32,
          "num_key_value_heads": 32, "num_hidden_layers": 32, "sliding_window": 262144,
          "max_position_embeddings": 131072})");
  EXPECT_EQ(slope_of(model), 393216);
  EXPECT_THAT(model.notes, Contains(HasSubstr("sliding_window: 262144 is not below")));
}

TEST(Windows, OfATypeWithoutThemAreNotedAndNotApplied) {
  const ModelSpec model = read(
      R"({"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8,
          "num_key_value_heads": 2, "num_hidden_layers": 2, "sliding_window": 64})");
  EXPECT_EQ(fixed_of(model), 0u);
  EXPECT_THAT(model.notes, Contains(HasSubstr("sliding_window: found 64")));
}

TEST(Llama4, ListsItsFullLayersByRope) {
  const ModelSpec model = read(
      R"({"model_type": "llama4_text", "num_hidden_layers": 4, "no_rope_layers": [0, 1, 1, 0],
          "attention_chunk_size": 100})");
  ASSERT_EQ(model.groups.size(), 2u);
  EXPECT_THAT(model.groups[0].layers, ElementsAre(0u, 3u));
  EXPECT_EQ(words(model.groups[1].streams[0]), "chunk(100) all resident head");
}

TEST(Gemma3n, SharesTheLastOwnerOfTheSameKind) {
  const ModelSpec model = read(R"({"model_type": "gemma3n_text"})");  // the class is E4B
  // 35 layers, the last 15 share; full layers are 4, 9, 14, 19, ...
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) {
      const bool is_full = stream.lifetime.kind == Lifetime::Kind::kNever;
      if (group.layers.front() < 20) {
        EXPECT_FALSE(stream.owner_layer.has_value());
      } else {
        EXPECT_EQ(stream.owner_layer, is_full ? 19u : 18u);
      }
    }
  }
  EXPECT_EQ(model.groups.size(), 4u);
}

TEST(Mllama, KeepsVisionTokensConstantPerSequence) {
  const ModelSpec model = read(
      R"({"model_type": "mllama", "text_config": {"num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64,
          "cross_attention_layers": [1]},
          "vision_config": {"image_size": 28, "patch_size": 14, "max_num_tiles": 3}})");
  // 3 tiles x (2 x 2 patches + 1) = 15 vision tokens x 2 heads x 16 dims x 2 B, K and V.
  EXPECT_EQ(fixed_of(model), 15u * 2 * 16 * 2 * 2);
  EXPECT_EQ(slope_of(model), 2 * 16 * 2 * 2);
  EXPECT_EQ(model.groups[1].architecture, "cross");
  EXPECT_THAT(model.notes, Contains(HasSubstr("15 vision tokens")));
}

TEST(Drafts, AreLayersAfterTheModelsOwn) {
  const ModelSpec glm = read(
      R"({"model_type": "glm4_moe", "num_hidden_layers": 92, "num_attention_heads": 96,
          "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 5120,
          "num_nextn_predict_layers": 1})");
  EXPECT_EQ(glm.num_layers, 92u);
  ASSERT_EQ(glm.draft_groups.size(), 1u);
  EXPECT_THAT(glm.draft_groups[0].layers, ElementsAre(92u));
  EXPECT_EQ(slope_of(glm), 376832);  // without the draft layer
  const ModelSpec minimax = read(
      R"({"model_type": "minimax_m2", "use_mtp": true, "num_mtp_modules": 3,
          "mtp_transformer_layers": 1})");
  EXPECT_THAT(minimax.draft_groups.at(0).layers, ElementsAre(62u, 63u, 64u));
}

TEST(Falcon, IgnoresItsKvHeadsInTheOldArchitecture) {
  const ModelSpec model = read(
      R"({"model_type": "falcon", "num_hidden_layers": 32, "num_attention_heads": 71,
          "num_kv_heads": 71, "hidden_size": 4544, "multi_query": true})");
  EXPECT_EQ(slope_of(model), 8192);
  EXPECT_THAT(architecture_names(model), ElementsAre("mqa"));
}

struct Contradiction {
  const char* name;
  const char* text;
  const char* key;       // named with its nesting
  const char* expected;  // a part of the rest of the message
};

class ContradictoryConfig : public testing::TestWithParam<Contradiction> {};

TEST_P(ContradictoryConfig, IsRefusedByTheNameOfItsKey) {
  const auto model = read_config_json(GetParam().text, "config.json");
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(model.error().message,
              AllOf(HasSubstr(fmt::format("config.json: {}", GetParam().key)),
                    HasSubstr(GetParam().expected)));
}

// clang-format off
const Contradiction kContradictions[] = {
    {"TypeIsNoString", R"({"model_type": 7})", "model_type: found 7", "a string"},
    {"LayersAreNegative", R"({"model_type": "llama", "num_hidden_layers": -1})",
     "num_hidden_layers: found -1", "from 1 to 4096"},
    {"LayersAreZero", R"({"model_type": "llama", "num_hidden_layers": 0})",
     "num_hidden_layers: found 0", "from 1 to 4096"},
    {"LayersAreHuge", R"({"model_type": "llama", "num_hidden_layers": 1e18})",
     "num_hidden_layers: found 1", "from 1 to 4096"},
    {"LayersAreInfinite", R"({"model_type": "llama", "num_hidden_layers": Infinity})",
     "num_hidden_layers: found inf", "an integer"},
    {"LayersAreNull", R"({"model_type": "llama", "num_hidden_layers": null})",
     "num_hidden_layers: found null", "an integer"},
    {"LayersAreAString", R"({"model_type": "llama", "num_hidden_layers": "32"})",
     "num_hidden_layers: found \"32\"", "an integer"},
    {"HeadsAreFractional", R"({"model_type": "llama", "num_attention_heads": 31.5})",
     "num_attention_heads: found 31.5", "an integer"},
    {"HiddenIsNoMultipleOfHeads", R"({"model_type": "llama", "hidden_size": 100, "num_attention_heads": 32})",
     "hidden_size: found 100", "a multiple of the 32 query heads"},
    {"KvHeadsDoNotDivide", R"({"model_type": "llama", "num_key_value_heads": 5})",
     "num_key_value_heads: found 5", "a divisor of the 32 query heads"},
    {"KvHeadsAreZero", R"({"model_type": "llama", "num_key_value_heads": 0})",
     "num_key_value_heads: found 0", "from 1"},
    {"NamesDisagree", R"({"model_type": "gpt2", "n_layer": 12, "num_hidden_layers": 24})",
     "n_layer: found 12", "24, as num_hidden_layers says"},
    {"HeadDimIsHuge", R"({"model_type": "llama", "head_dim": 99999999})",
     "head_dim: found 99999999", "from 1"},
    {"WindowIsZero", R"({"model_type": "mistral", "sliding_window": 0})",
     "sliding_window: found 0", "from 1"},
    {"WindowIsNegative", R"({"model_type": "mistral", "sliding_window": -4096})",
     "sliding_window: found -4096", "from 1"},
    {"PatternIsZero", R"({"model_type": "gemma3_text", "sliding_window_pattern": 0})",
     "sliding_window_pattern: found 0", "from 1"},
    {"PatternHasOtherLetters", R"({"model_type": "exaone4", "sliding_window_pattern": "LLX"})",
     "sliding_window_pattern: found \"LLX\"", "letters L"},
    {"LayerTypesAreShort", R"({"model_type": "qwen3", "num_hidden_layers": 3, "layer_types": ["full_attention"]})",
     "layer_types: found a list of 1", "each of 3 layers"},
    {"LayerTypesHaveAnUnknownWord", R"({"model_type": "qwen3", "num_hidden_layers": 2, "layer_types": ["full_attention", "magic"]})",
     "layer_types[1]: found \"magic\"", "full_attention"},
    {"LayerTypesAreNumbers", R"({"model_type": "qwen3", "num_hidden_layers": 1, "layer_types": [1]})",
     "layer_types[0]: found 1", "a string"},
    {"LayerTypesSlideWithoutWindow", R"({"model_type": "smollm3", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]})",
     "sliding_window: missing", "the window of the sliding layers"},
    {"LayerTypesSlideAgainstTheFlag", R"({"model_type": "qwen3", "num_hidden_layers": 1, "layer_types": ["sliding_attention"], "use_sliding_window": false})",
     "layer_types: found sliding_attention", "use_sliding_window is false"},
    {"LayerTypesAreChunkedElsewhere", R"({"model_type": "llama", "num_hidden_layers": 1, "layer_types": ["chunked_attention"]})",
     "layer_types: found chunked_attention", "full_attention"},
    {"FlagIsNoFlag", R"({"model_type": "qwen2", "use_sliding_window": "yes"})",
     "use_sliding_window: found \"yes\"", "true or false"},
    {"TooManyShared", R"({"model_type": "gemma3n_text", "num_kv_shared_layers": 35})",
     "num_kv_shared_layers: found 35", "fewer than the 35 layers"},
    {"SharedWithoutAnOwner", R"({"model_type": "gemma3n_text", "num_hidden_layers": 5, "num_kv_shared_layers": 1})",
     "num_kv_shared_layers: found 1", "a layer of the kind of layer 4"},
    {"GlobalHeadsDoNotDivide", R"({"model_type": "gemma4_text", "num_global_key_value_heads": 3, "attention_k_eq_v": true})",
     "num_global_key_value_heads: found 3", "a divisor of the 8"},
    {"ChunkIsZero", R"({"model_type": "llama4_text", "attention_chunk_size": 0})",
     "attention_chunk_size: found 0", "from 1"},
    {"RopeListIsShort", R"({"model_type": "llama4_text", "no_rope_layers": [1, 1]})",
     "no_rope_layers: found a list of 2", "each of 48 layers"},
    {"HybridPatternIsShort", R"({"model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1]})",
     "hybrid_layer_pattern: found a list of 2", "each of 48 layers"},
    {"HybridPatternHasATwo", R"({"model_type": "mimo_v2_flash", "hybrid_layer_pattern": [2]})",
     "hybrid_layer_pattern[0]: found 2", "from 0 to 1"},
    {"WindowHeadsDoNotDivide", R"({"model_type": "mimo_v2_flash", "swa_num_key_value_heads": 7})",
     "swa_num_key_value_heads: found 7", "a divisor of the 64"},
    {"CrossLayerIsOutside", R"({"model_type": "mllama", "text_config": {"cross_attention_layers": [40]}})",
     "text_config.cross_attention_layers[0]: found 40", "from 0 to 39"},
    {"CrossLayerIsTwice", R"({"model_type": "mllama", "text_config": {"cross_attention_layers": [3, 3]}})",
     "text_config.cross_attention_layers: found 3 twice", "every layer once"},
    {"ImageIsAbsurd", R"({"model_type": "mllama", "text_config": {}, "vision_config": {"image_size": 65536, "patch_size": 1}})",
     "vision_config.image_size: found", "at most"},
    {"BlocksAreMissing", R"({"model_type": "nemotron-nas", "num_key_value_heads": null})",
     "block_configs: missing", "the heads of every block"},
    {"BlocksAreShort", R"({"model_type": "nemotron-nas", "block_configs": []})",
     "block_configs: found a list of 0", "each of 32 layers"},
    {"BlockHasNoHeads", R"({"model_type": "nemotron-nas", "num_hidden_layers": 1, "block_configs": [{"attention": {}}]})",
     "block_configs[0].attention.n_heads_in_group: missing", "an integer"},
    {"BlockGroupDoesNotDivide", R"({"model_type": "nemotron-nas", "num_hidden_layers": 1, "block_configs": [{"attention": {"n_heads_in_group": 7}}]})",
     "block_configs[0].attention.n_heads_in_group: found 7", "a divisor of the 32"},
    {"ListOfKvHeadsIsMissing", R"({"model_type": "openelm", "num_transformer_layers": 1, "head_dim": 64, "num_query_heads": [4]})",
     "num_kv_heads: missing", "one entry a layer"},
    {"AttentionTypesAreMalformed", R"({"model_type": "gpt_neo", "attention_types": [["global", 12]]})",
     "attention_types: found a list of 1", "repetitions"},
    {"AttentionTypesAreEndless", R"({"model_type": "gpt_neo", "attention_types": [[["global"], 9000000000000]]})",
     "attention_types: found 25 layers or more", "24 layers"},
    {"AttentionKindIsUnknown", R"({"model_type": "mpt", "attn_config": {"attn_type": "magic"}})",
     "attn_config.attn_type: found \"magic\"", "multihead_attention"},
    {"GroupsAreMissing", R"({"model_type": "mpt", "attn_config": {"attn_type": "grouped_query_attention"}})",
     "attn_config.kv_n_heads: missing", "an integer"},
    {"ContextIsNegative", R"({"model_type": "llama", "max_position_embeddings": -5})",
     "max_position_embeddings: found -5", "from 1"},
};
// clang-format on

INSTANTIATE_TEST_SUITE_P(All, ContradictoryConfig, testing::ValuesIn(kContradictions),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace kvarto
