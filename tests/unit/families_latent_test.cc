#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvarto/model_file.h"
#include "unit/cost_sums.h"

namespace kvarto {
namespace {

using ::testing::HasSubstr;

constexpr CacheTypes kAuto{.key = "auto", .value = "auto", .index = ""};
constexpr CacheTypes kPacked{.key = "fp8_ds_mla", .value = "fp8_ds_mla", .index = ""};

ModelSpec read(const std::string& json) {
  const auto model = read_config_json(json, "config.json");
  EXPECT_TRUE(model.has_value()) << (model ? "" : model.error().message);
  if (!model) return {};
  EXPECT_FALSE(model->is_unknown_type) << model->model_type;
  return *model;
}

std::string error_of(const std::string& json) {
  const auto model = read_config_json(json, "config.json");
  return model ? "" : model.error().message;
}

struct Expected {
  double slope = 0;
  std::uint64_t fixed = 0;
  std::size_t notes = 0;
};

void expect_cost(const ModelSpec& model, const Expected& expected) {
  const ModelSpec bf16 = typed(model);
  EXPECT_EQ(slope_of(bf16), expected.slope);
  EXPECT_EQ(fixed_of(bf16), expected.fixed);
  EXPECT_EQ(model.notes.size(), expected.notes) << (model.notes.empty() ? "" : model.notes.front());
}

std::uint64_t num_draft_layers(const ModelSpec& model) {
  std::uint64_t count = 0;
  for (const LayerGroup& group : model.draft_groups) count += group.layers.size();
  return count;
}

std::uint64_t layers_with(const ModelSpec& model, std::string_view stream) {
  std::uint64_t count = 0;
  for (const LayerGroup& group : model.groups) {
    for (const Stream& s : group.streams) {
      if (s.name == stream && !s.owner_layer) count += group.layers.size();
    }
  }
  return count;
}

std::string with_type(const std::string& type, const std::string& rest) {
  return "{\"model_type\":\"" + type + "\"," + rest + "}";
}

std::string mla_keys(int layers, int heads, const char* dims) {
  return "\"num_hidden_layers\":" + std::to_string(layers) + ",\"hidden_size\":7168," +
         "\"max_position_embeddings\":163840,\"num_attention_heads\":" + std::to_string(heads) +
         ",\"num_key_value_heads\":" + std::to_string(heads) + "," + dims;
}

const char* const kDims128 =
    "\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,\"qk_nope_head_dim\":128,\"v_head_dim\":128";
const char* const kDims192 =
    "\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,\"qk_nope_head_dim\":192,\"v_head_dim\":256";

// Rows 59 to 61, 66 and 73 of the model table: 576 elements of bf16 a layer.
TEST(LatentFamily, HasThePublishedBytesOfMlaModels) {
  expect_cost(read(with_type("deepseek_v2", mla_keys(60, 128, kDims128))), {69'120, 0, 0});
  expect_cost(read(with_type("deepseek_v2", mla_keys(27, 16, kDims128))), {31'104, 0, 0});
  expect_cost(read(with_type("deepseek_v3", mla_keys(61, 128, kDims128))), {70'272, 0, 0});
  expect_cost(read(with_type("kimi_k2", mla_keys(61, 64, kDims128))), {70'272, 0, 0});
  expect_cost(read(with_type("glm4_moe_lite", mla_keys(47, 20, kDims192))), {54'144, 0, 0});
}

// DeepSeek-V2 paper: 93.3 % smaller than DeepSeek-67B (95 layers of 8 x 128) with 6-bit rows.
TEST(LatentFamily, SavesTheShareOfTheDeepSeekV2Paper) {
  const ModelSpec v2 = typed(read(with_type("deepseek_v2", mla_keys(60, 128, kDims128))));
  const double dense_elements = 95 * 2 * 8 * 128;
  EXPECT_EQ(dense_elements, 194'560);
  EXPECT_NEAR(1 - slope_of(v2) / 2 * 6 / 8 / (dense_elements * 2), 0.93339, 0.000005);
}

// ISCA 2025 paper: DeepSeek-V3 70,272 against 327,680 and 516,096 bytes of two GQA models.
TEST(LatentFamily, IgnoresTheKeyValueHeadsOfMla) {
  const ModelSpec v3 = typed(read(with_type("deepseek_v3", mla_keys(61, 128, kDims128))));
  EXPECT_NEAR(327'680 / slope_of(v3), 4.66, 0.005);
  EXPECT_NEAR(516'096 / slope_of(v3), 7.34, 0.005);
  EXPECT_EQ(v3.groups.front().query.full_qk_dim, 192u);
  EXPECT_EQ(v3.groups.front().query.full_v_dim, 128u);
}

// Row 111: latent 256 + 64, inside a multimodal file.
TEST(LatentFamily, ReadsTheNestedModelOfMistralSmall4) {
  const std::string text =
      with_type("mistral4", mla_keys(36, 32,
                                     "\"kv_lora_rank\":256,\"qk_rope_head_dim\":64,"
                                     "\"qk_nope_head_dim\":64,\"v_head_dim\":128"));
  expect_cost(read("{\"model_type\":\"mistral3\",\"text_config\":" + text + "}"), {23'040, 0, 0});
}

// Row 67: the text model of Kimi-K2.5 is of type kimi_k2.
TEST(LatentFamily, ReadsTheNestedModelOfKimiK25) {
  const std::string text = with_type("kimi_k2", mla_keys(61, 64, kDims128));
  const ModelSpec model = read("{\"model_type\":\"kimi_k25\",\"text_config\":" + text + "}");
  expect_cost(model, {70'272, 0, 0});
  EXPECT_EQ(model.max_context, 163'840u);
}

TEST(LatentFamily, DerivesTheValueWidthOfMiniCpm3) {
  const ModelSpec model = read(
      with_type("minicpm3",
                "\"num_hidden_layers\":62,\"hidden_size\":2560,\"num_attention_heads\":40,"
                "\"max_position_embeddings\":32768,\"kv_lora_rank\":256,\"qk_rope_head_dim\":32,"
                "\"qk_nope_head_dim\":64"));
  expect_cost(model, {62 * (256 + 32) * 2, 0, 0});
  EXPECT_EQ(model.groups.front().query.full_v_dim, 64u);
}

// 28 blocks of two attentions: 56 rows of 576 elements.
TEST(LatentFamily, CountsTheTwoAttentionsOfALongCatBlock) {
  const ModelSpec model = read(with_type(
      "longcat_flash", std::string("\"num_layers\":28,\"hidden_size\":6144,\"num_attention_heads\":"
                                   "64,\"max_position_embeddings\":131072,") +
                           kDims128));
  expect_cost(model, {56 * 1152, 0, 1});
  EXPECT_EQ(model.num_layers, 56u);
}

TEST(LatentFamily, NamesEveryDefaultItTakes) {
  const ModelSpec model = read("{\"model_type\":\"deepseek_v3\"}");
  expect_cost(model, {70'272, 0, 8});
  EXPECT_THAT(model.notes.front(), HasSubstr("num_hidden_layers: absent, took 61"));
}

TEST(LatentFamily, ReadsADeepSeekModelWithoutLatentsAsDense) {
  const ModelSpec model =
      read(with_type("deepseek_v2",
                     "\"use_mla\":false,\"num_hidden_layers\":12,\"hidden_size\":1280,"
                     "\"num_attention_heads\":10,\"num_key_value_heads\":10,"
                     "\"kv_lora_rank\":null,\"max_position_embeddings\":4096"));
  expect_cost(model, {12 * 2 * 10 * 128 * 2, 0, 0});
}

const std::string kV32 = with_type(
    "deepseek_v32", mla_keys(61, 128, kDims128) +
                        ",\"index_n_heads\":64,\"index_head_dim\":128,\"index_topk\":2048,"
                        "\"num_nextn_predict_layers\":1");

// Row 62: 78,324 with a bf16 latent; 48,068 with the 656-byte row; one prediction block apart.
TEST(SparseFamily, HasThePublishedBytesOfDeepSeekV32) {
  const ModelSpec model = read(kV32);
  expect_cost(model, {78'324, 0, 0});
  EXPECT_EQ(slope_of(typed(model, kPacked)), 48'068);
  EXPECT_EQ(model.num_layers, 61u);
  EXPECT_EQ(num_draft_layers(model), 1u);
  EXPECT_EQ(model.draft_groups.front().layers, std::vector<std::uint32_t>{61});
  EXPECT_EQ(architecture_names(model), std::vector<std::string>{"dsa"});
}

std::string glm_keys(const std::string& rest) {
  return with_type("glm_moe_dsa",
                   mla_keys(78, 64, kDims192) +
                       ",\"index_n_heads\":32,\"index_head_dim\":128,\"index_topk\":2048" + rest);
}

// Rows 74 and 75: 78 index caches in GLM-5, 21 in GLM-5.2.
TEST(SparseFamily, HasThePublishedBytesOfGlm5) {
  expect_cost(read(glm_keys("")), {100'152, 0, 0});
  std::string types;
  for (int i = 0; i < 78; ++i) {
    types +=
        std::string(i == 0 ? "" : ",") + (i < 3 || (i - 2) % 4 == 0 ? "\"full\"" : "\"shared\"");
  }
  const ModelSpec listed = read(glm_keys(",\"indexer_types\":[" + types + "]"));
  expect_cost(listed, {92'628, 0, 0});
  EXPECT_EQ(layers_with(listed, "index_key"), 21u);
  const ModelSpec counted = read(glm_keys(",\"index_topk_freq\":4,\"index_skip_topk_offset\":3"));
  ASSERT_EQ(counted.groups.size(), listed.groups.size());
  for (std::size_t i = 0; i < counted.groups.size(); ++i) {
    EXPECT_EQ(counted.groups[i].layers, listed.groups[i].layers);
    EXPECT_EQ(counted.groups[i].streams, listed.groups[i].streams);
  }
  EXPECT_EQ(counted.groups.at(1).layers, (std::vector<std::uint32_t>{3, 4, 5}));
  EXPECT_EQ(counted.groups.at(1).streams.front().selection_layer, 2u);
}

TEST(SparseFamily, RefusesAListThatDoesNotFitTheLayers) {
  EXPECT_THAT(error_of(glm_keys(",\"indexer_types\":[\"full\",\"shared\"]")),
              HasSubstr("indexer_types: found 2 entries, expected 78"));
  EXPECT_THAT(error_of(glm_keys(",\"index_topk_pattern\":\"" + std::string(78, 'S') + "\"")),
              HasSubstr("index_topk_pattern[0]: found shared"));
  EXPECT_THAT(error_of(glm_keys(",\"index_topk_pattern\":\"F" + std::string(77, 'X') + "\"")),
              HasSubstr("index_topk_pattern[1]: found \"X\", expected one of F S"));
}

std::string v4_ratios(int layers, bool starts_sliding) {
  std::string list;
  for (int i = 0; i < layers; ++i) {
    const int ratio = i < 2 ? (starts_sliding ? 0 : 128) : i % 2 == 0 ? 4 : 128;
    list += std::to_string(ratio) + ",";
  }
  return "\"compress_ratios\":[" + list + "0]";
}

std::string v4_config(int layers, int heads, int top_k, const std::string& rest) {
  return with_type("deepseek_v4",
                   "\"num_hidden_layers\":" + std::to_string(layers) +
                       ",\"hidden_size\":4096,\"max_position_embeddings\":1048576,"
                       "\"num_attention_heads\":" +
                       std::to_string(heads) +
                       ",\"num_key_value_heads\":1,\"head_dim\":512,\"qk_rope_head_dim\":64,"
                       "\"sliding_window\":128,\"index_n_heads\":64,\"index_head_dim\":128,"
                       "\"index_topk\":" +
                       std::to_string(top_k) + ",\"num_nextn_predict_layers\":1," + rest);
}

// Rows 63 and 64.
TEST(CompressedFamily, HasThePublishedBytesOfDeepSeekV4) {
  const ModelSpec flash = read(v4_config(43, 64, 512, v4_ratios(43, true)));
  EXPECT_EQ(slope_of(typed(flash, kPacked)), 3514.25);
  EXPECT_EQ(slope_of(typed(flash, {"fp8_ds_mla", "fp8_ds_mla", "fp8"})), 3850.25);
  EXPECT_EQ(slope_of(typed(flash)), 6880);
  EXPECT_EQ(fixed_of(typed(flash, kPacked)), 3'214'336u + 12'206'080u);
  EXPECT_EQ(architecture_names(flash), (std::vector<std::string>{"swa", "csa", "hca"}));
  EXPECT_EQ(num_draft_layers(flash), 1u);
  EXPECT_EQ(flash.draft_groups.front().streams.size(), 1u);
  EXPECT_TRUE(flash.notes.empty());
}

// V4-Pro: 31 HCA and 30 CSA layers that begin with two HCA layers: a list of 61 entries and one.
TEST(CompressedFamily, HasThePublishedBytesOfDeepSeekV4Pro) {
  std::string list = "128,128";
  for (int i = 2; i < 61; ++i) list += i % 2 == 0 ? ",4" : ",128";
  const ModelSpec pro = read(v4_config(61, 128, 1024, "\"compress_ratios\":[" + list + ",0]"));
  EXPECT_EQ(slope_of(typed(pro, kPacked)), 5031.4375);
  EXPECT_EQ(slope_of(typed(pro)), 9848);
  EXPECT_EQ(fixed_of(typed(pro, kPacked)), 4'559'872u + 18'710'528u);
}

TEST(CompressedFamily, TakesLayerTypesInsteadOfRatios) {
  const ModelSpec model = read(v4_config(
      3, 64, 512,
      "\"layer_types\":[\"sliding_attention\",\"compressed_sparse_attention\","
      "\"heavily_compressed_attention\"],\"compress_rates\":{\"compressed_sparse_attention\":8,"
      "\"heavily_compressed_attention\":64}"));
  EXPECT_EQ(slope_of(typed(model, kPacked)), (584 + 68) / 8.0 + 584 / 64.0);
  EXPECT_EQ(stream_named(model, "compressed_kv").tokens_per_row, 8u);
}

TEST(CompressedFamily, RefusesContradictoryRatios) {
  EXPECT_THAT(error_of(v4_config(3, 64, 512, "\"compress_ratios\":[0,4]")),
              HasSubstr("compress_ratios: found 2 entries, expected 3 to 4"));
  EXPECT_THAT(error_of(v4_config(3, 64, 512, "\"compress_ratios\":[0,4,7]")),
              HasSubstr("compress_ratios[2]: found 7, expected 0, 4 or 128"));
  EXPECT_THAT(error_of(v4_config(
                  1, 64, 512, "\"compress_ratios\":[4],\"layer_types\":[\"sliding_attention\"]")),
              HasSubstr("compress_ratios: found a list that differs from layer_types"));
}

TEST(CompressedFamily, RefusesRowsWhoseStateWouldOverflow) {
  EXPECT_THAT(error_of("{\"model_type\":\"deepseek_v4\",\"head_dim\":1048576}"),
              HasSubstr("head_dim: found 1048576, expected an integer from 1 to 65536"));
  EXPECT_THAT(error_of("{\"model_type\":\"deepseek_v4\",\"index_head_dim\":65537}"),
              HasSubstr("index_head_dim: found 65537"));
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string v41_config(const std::string& rest) {
  return with_type(
      "deepseek_v41_text",
      "\"num_hidden_layers\":40,\"hidden_size\":5120,\"max_position_embeddings\":1048576,"
      "\"num_attention_heads\":64,\"num_key_value_heads\":1,\"head_dim\":512,"
      "\"qk_rope_head_dim\":64,\"sliding_window\":128,\"index_n_heads\":32,\"index_head_dim\":128,"
      "\"index_topk\":512,\"candidate_source_layer_id\":20,\"candidate_topk_blocks\":2048,"
      "\"candidate_block_size\":8,\"num_nextn_predict_layers\":3,"
      "\"compress_ratios\":[0,0," +
          repeated("2,", 18) + repeated("1,", 20) + "0,0,0]," + rest);
}

const char* const kV41Sources =
    "\"kv_source_layer_ids\":[2,8,14,20],\"index_source_layer_ids\":[2,8,14,20,24,28,32,36]";

// Row 65: (3/2 + 1)(288 + 68) = 890 bytes a token; V4-Flash needs 3.95 times as many.
TEST(CompressedFamily, HasThePublishedBytesOfDeepSeekV41) {
  const ModelSpec model = read(v41_config(kV41Sources));
  const ModelSpec native = typed(model, kAuto);
  EXPECT_EQ(slope_of(native), 890);
  EXPECT_NEAR(3514.25 / slope_of(native), 3.95, 0.005);
  // 40 windows of 128 rows of 528 bytes, and 3 compressor states of 2 x 512 x 2 f32.
  EXPECT_EQ(fixed_of(native), 40u * 128 * 528 + 3 * 8192);
  EXPECT_EQ(layers_with(model, "compressed_kv"), 4u);
  EXPECT_EQ(layers_with(model, "index_key"), 4u);
  EXPECT_EQ(num_draft_layers(model), 3u);
  EXPECT_TRUE(model.notes.empty()) << model.notes.front();
}

// Layer 24 chooses anew among the owner's index keys; layer 25 reuses that choice.
TEST(CompressedFamily, TellsReindexLayersFromReuseLayers) {
  const ModelSpec model = read(v41_config(kV41Sources));
  const auto streams_of = [&](std::uint32_t layer) {
    for (const LayerGroup& group : model.groups) {
      if (std::find(group.layers.begin(), group.layers.end(), layer) != group.layers.end()) {
        return group.streams;
      }
    }
    return std::vector<Stream>();
  };
  ASSERT_EQ(streams_of(24).size(), 3u);
  EXPECT_EQ(streams_of(24)[2].owner_layer, 20u);
  EXPECT_EQ(to_string(streams_of(24)[2].access), "blocks(16384)");
  ASSERT_EQ(streams_of(25).size(), 2u);
  EXPECT_EQ(streams_of(25)[1].owner_layer, 20u);
  EXPECT_EQ(streams_of(25)[1].selection_layer, 24u);
  EXPECT_EQ(to_string(streams_of(20)[2].access), "all");
  EXPECT_EQ(streams_of(9)[1].owner_layer, 8u);
}

TEST(CompressedFamily, RefusesContradictorySources) {
  EXPECT_THAT(error_of(v41_config("\"kv_source_layer_ids\":[2,8,14,20],"
                                  "\"index_source_layer_ids\":[2,8,20]")),
              HasSubstr("index_source_layer_ids: found no layer 14"));
  EXPECT_THAT(error_of(v41_config("\"kv_source_layer_ids\":[1],\"index_source_layer_ids\":[1]")),
              HasSubstr("kv_source_layer_ids: found layer 1"));
  EXPECT_THAT(error_of(v41_config("\"kv_source_layer_ids\":[8,20],"
                                  "\"index_source_layer_ids\":[8,20]")),
              HasSubstr("compress_ratios[2]: found 2"));
  EXPECT_THAT(error_of(v41_config("\"kv_source_layer_ids\":[2,2],\"index_source_layer_ids\":[2]")),
              HasSubstr("kv_source_layer_ids: found layer 2 twice"));
}

}  // namespace
}  // namespace kvarto
