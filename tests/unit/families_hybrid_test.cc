#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvarto/model_file.h"
#include "unit/cost_sums.h"

namespace kvarto {
namespace {

using ::testing::HasSubstr;

ModelSpec read(const std::string& json) {
  const auto model = read_config_json(json, "config.json");
  EXPECT_TRUE(model.has_value()) << (model ? "" : model.error().message);
  if (!model) return {};
  EXPECT_FALSE(model->is_unknown_type) << model->model_type;
  EXPECT_TRUE(model->notes.empty()) << model->notes.front();
  return *model;
}

std::string error_of(const std::string& json) {
  const auto model = read_config_json(json, "config.json");
  return model ? "" : model.error().message;
}

void expect_cost(const ModelSpec& model, double slope, std::uint64_t fixed) {
  const ModelSpec bf16 = typed(model);
  EXPECT_EQ(slope_of(bf16), slope);
  EXPECT_EQ(fixed_of(bf16), fixed);
}

std::uint64_t num_draft_layers(const ModelSpec& model) {
  std::uint64_t count = 0;
  for (const LayerGroup& group : model.draft_groups) count += group.layers.size();
  return count;
}

struct Gdn {
  const char* type;
  int layers, heads, kv_heads, v_heads;
};

std::string gdn_keys(const Gdn& gdn, const std::string& rest = "") {
  return "{\"model_type\":\"" + std::string(gdn.type) +
         "\",\"num_hidden_layers\":" + std::to_string(gdn.layers) +
         ",\"hidden_size\":2048,\"max_position_embeddings\":262144,\"head_dim\":256,"
         "\"num_attention_heads\":" +
         std::to_string(gdn.heads) + ",\"num_key_value_heads\":" + std::to_string(gdn.kv_heads) +
         ",\"full_attention_interval\":4,\"linear_num_key_heads\":16,\"linear_num_value_heads\":" +
         std::to_string(gdn.v_heads) +
         ",\"linear_key_head_dim\":128,\"linear_value_head_dim\":128,\"linear_conv_kernel_dim\":4" +
         rest + "}";
}

// Rows 36 to 39 of the model table.
TEST(DeltaNetFamily, HasThePublishedBytesOfQwenHybrids) {
  expect_cost(read(gdn_keys({"qwen3_next", 48, 16, 2, 32})), 24'576, 77'266'944);
  expect_cost(read(gdn_keys({"qwen3_5_text", 64, 24, 4, 48})), 65'536, 153'944'064);
  expect_cost(read(gdn_keys({"qwen3_5_moe_text", 40, 16, 2, 32})), 20'480, 64'389'120);
  expect_cost(read(gdn_keys({"qwen3_5_moe_text", 60, 32, 2, 64})), 30'720, 192'061'440);
}

TEST(DeltaNetFamily, TakesTheStateTypeThatTheFileNames) {
  const ModelSpec model =
      read(gdn_keys({"qwen3_next", 48, 16, 2, 32}, ",\"mamba_ssm_dtype\":\"bfloat16\""));
  EXPECT_EQ(fixed_of(typed(model)), 39'518'208u);
  EXPECT_THAT(error_of(gdn_keys({"qwen3_next", 48, 16, 2, 32}, ",\"mamba_ssm_dtype\":\"int8\"")),
              HasSubstr("mamba_ssm_dtype: found \"int8\""));
}

TEST(DeltaNetFamily, TakesTheListOfLayerTypesAndThePredictionBlock) {
  const ModelSpec model = read(
      gdn_keys({"qwen3_5_text", 3, 24, 4, 48},
               ",\"layer_types\":[\"linear_attention\",\"linear_attention\",\"full_attention\"],"
               "\"mtp_num_hidden_layers\":1"));
  EXPECT_EQ(slope_of(typed(model)), 4096);
  EXPECT_EQ(num_draft_layers(model), 1u);
  EXPECT_EQ(model.groups.at(0).architecture, "gdn");
  EXPECT_EQ(model.groups.at(1).architecture, "gqa");
}

TEST(DeltaNetFamily, RefusesListsThatDoNotFit) {
  EXPECT_THAT(
      error_of(gdn_keys({"qwen3_next", 4, 16, 2, 32}, ",\"layer_types\":[\"full_attention\"]")),
      HasSubstr("layer_types: found 1 entries, expected 4"));
  EXPECT_THAT(error_of(gdn_keys({"qwen3_next", 1, 16, 2, 32}, ",\"layer_types\":[\"magic\"]")),
              HasSubstr("layer_types[0]: found \"magic\""));
  EXPECT_THAT(error_of(gdn_keys({"qwen3_next", 4, 16, 3, 32})),
              HasSubstr("num_key_value_heads: found 3"));
}

// The same numbers as the text models of rows 37 and 38, in the config of the model with vision.
TEST(DeltaNetFamily, TakesTheTextModelOfAModelWithVision) {
  const auto nested = [](const std::string& type, const std::string& text) {
    return "{\"model_type\":\"" + type + "\",\"text_config\":" + text + "}";
  };
  expect_cost(read(nested("qwen3_5", gdn_keys({"qwen3_5_text", 64, 24, 4, 48}))), 65'536,
              153'944'064);
  expect_cost(read(nested("qwen3_5_moe", gdn_keys({"qwen3_5_moe_text", 40, 16, 2, 32}))), 20'480,
              64'389'120);
}

// Row 110: 24,576 of K and V and 768 of bf16 index keys, one for 4 tokens.
TEST(DeltaNetFamily, HasThePublishedBytesOfQwen38FlashNext) {
  const ModelSpec model =
      read(gdn_keys({"qwen4_exp_text", 48, 24, 2, 48},
                    ",\"indexer_n_heads\":4,\"indexer_kv_heads\":1,\"indexer_head_dim\":128,"
                    "\"indexer_budget\":2048,\"indexer_compress_ratio\":4"));
  expect_cost(model, 25'344, 115'458'048);
  EXPECT_EQ(words(stream_named(model, "k")), "never blocks(2048) any head");
  EXPECT_EQ(stream_named(model, "index_key").tokens_per_row, 4u);
  EXPECT_EQ(model.groups.at(1).architecture, "qsa");
  EXPECT_THAT(error_of(gdn_keys({"qwen4_exp_text", 48, 24, 2, 48}, ",\"indexer_n_heads\":4")),
              HasSubstr("indexer_kv_heads: missing"));
}

std::string kimi_keys(int layers, int heads, const std::string& full) {
  std::string kda;
  for (int i = 1; i <= layers; ++i) {
    if (("," + full + ",").find("," + std::to_string(i) + ",") == std::string::npos) {
      kda += (kda.empty() ? "" : ",") + std::to_string(i);
    }
  }
  const std::string count = std::to_string(heads);
  return "{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":" + std::to_string(layers) +
         ",\"hidden_size\":2304,\"model_max_length\":1048576,\"num_attention_heads\":" + count +
         ",\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,\"qk_nope_head_dim\":128,"
         "\"v_head_dim\":128,\"mla_use_nope\":true,\"linear_attn_config\":{\"full_attn_layers\":[" +
         full + "],\"kda_layers\":[" + kda + "],\"num_heads\":" + count +
         ",\"head_dim\":128,\"short_conv_kernel_size\":4}}";
}

// Rows 68 and 69.
TEST(KdaFamily, HasThePublishedBytesOfKimiLinearAndK3) {
  const ModelSpec linear = read(kimi_keys(27, 32, "4,8,12,16,20,24,27"));
  expect_cost(linear, 8'064, 43'417'600);
  EXPECT_EQ(linear.max_context, 1'048'576u);
  std::string full;
  for (int i = 4; i <= 92; i += 4) full += std::to_string(i) + ",";
  const std::string k3 = kimi_keys(93, 96, full + "93");
  expect_cost(read("{\"model_type\":\"kimi_k3\",\"text_config\":" + k3 + "}"), 27'648, 449'372'160);
}

TEST(KdaFamily, RefusesListsThatMissOrRepeatALayer) {
  const std::string head =
      "{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":2,\"linear_attn_config\":{";
  EXPECT_THAT(error_of(head + "\"full_attn_layers\":[1],\"kda_layers\":[1]}}"),
              HasSubstr("linear_attn_config.kda_layers: found layer 1"));
  EXPECT_THAT(error_of(head + "\"full_attn_layers\":[1],\"kda_layers\":[]}}"),
              HasSubstr("linear_attn_config.kda_layers: found no layer 2"));
  EXPECT_THAT(error_of(head + "\"full_attn_layers\":[3],\"kda_layers\":[1,2]}}"),
              HasSubstr("full_attn_layers[0]: found 3, expected an integer from 1 to 2"));
}

// Row 109: 11 latent rows of 512 without a rope part, 11 index keys for every 4 tokens, 34 KDA.
TEST(KdaFamily, HasThePublishedBytesOfGlm53Flash) {
  const ModelSpec model = read(
      "{\"model_type\":\"glm5_next_text\",\"num_hidden_layers\":45,\"hidden_size\":4096,"
      "\"max_position_embeddings\":1013760,\"num_attention_heads\":64,\"kv_lora_rank\":512,"
      "\"qk_rope_head_dim\":0,\"qk_nope_head_dim\":256,\"v_head_dim\":256,\"index_n_heads\":32,"
      "\"index_head_dim\":128,\"index_topk\":2048,\"index_kpool\":4,\"full_attention_interval\":4,"
      "\"linear_attn_config\":{\"num_heads\":64,\"head_dim\":128,\"short_conv_kernel_size\":4},"
      "\"num_nextn_predict_layers\":1}");
  expect_cost(model, 11'627, 147'619'840);
  EXPECT_EQ(num_draft_layers(model), 1u);
  EXPECT_EQ(stream_named(model, "latent").fields.size(), 1u);
  EXPECT_EQ(stream_named(model, "index_key").tokens_per_row, 4u);
}

// 512 pools of 4 tokens are chosen by 4,099 / 4 keys; the 3 tokens behind the last pool are read
// too.
TEST(KdaFamily, ReadsChosenPoolsAndTheTokensBehindTheLastOfGlm53Flash) {
  const ModelSpec model = read(
      "{\"model_type\":\"glm5_next_text\",\"num_hidden_layers\":4,\"hidden_size\":4096,"
      "\"num_attention_heads\":64,\"kv_lora_rank\":512,\"qk_rope_head_dim\":0,"
      "\"qk_nope_head_dim\":256,\"v_head_dim\":256,\"index_n_heads\":32,\"index_head_dim\":128,"
      "\"index_topk\":2048,\"index_kpool\":4,\"full_attention_interval\":4,"
      "\"linear_attn_config\":{\"num_heads\":64,\"head_dim\":128,\"short_conv_kernel_size\":4}}");
  const Stream latent = stream_named(model, "latent");
  EXPECT_EQ(rows_read(latent, 2047), 2047u);
  EXPECT_EQ(rows_read(latent, 2051), 2051u);
  EXPECT_EQ(rows_read(latent, 4096), 2048u);
  EXPECT_EQ(rows_read(latent, 4099), 2051u);
  EXPECT_EQ(rows_read(stream_named(model, "index_key"), 4099), 1024u);
}

TEST(KdaFamily, RefusesATopKThatSplitsAPool) {
  EXPECT_THAT(error_of("{\"model_type\":\"glm5_next\",\"index_topk\":2047,\"index_kpool\":4}"),
              HasSubstr("index_topk: found 2047, expected a multiple of index_kpool 4"));
}

// Row 76: 10 of 80 layers attend; 70 states of 64 x 128 x 128 f32.
TEST(LightningFamily, HasThePublishedBytesOfMiniMaxText01) {
  std::string list;
  for (int i = 1; i <= 80; ++i) list += std::string(i == 1 ? "" : ",") + (i % 8 == 0 ? "1" : "0");
  const std::string keys =
      "\"num_hidden_layers\":80,\"hidden_size\":6144,\"max_position_embeddings\":10240000,"
      "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"head_dim\":128";
  const ModelSpec model =
      read("{\"model_type\":\"minimax_text_01\"," + keys + ",\"attn_type_list\":[" + list + "]}");
  expect_cost(model, 40'960, 293'601'280);
  EXPECT_EQ(model.groups.front().architecture, "lightning");
  EXPECT_THAT(error_of("{\"model_type\":\"minimax_text_01\"," + keys + "}"),
              HasSubstr("attn_type_list: missing"));
}

// Row 78: 122,880 of K and V; 57 layers with an index key of 128 bf16 elements.
TEST(BlockSparseFamily, HasThePublishedBytesOfMiniMaxM3) {
  std::string flags = "0,0,0";
  for (int i = 3; i < 60; ++i) flags += ",1";
  const std::string keys =
      "\"num_hidden_layers\":60,\"hidden_size\":6144,"
      "\"max_position_embeddings\":1048576,\"num_attention_heads\":64,\"num_key_value_heads\":4,"
      "\"head_dim\":128,\"sparse_attention_config\":{\"use_sparse_attention\":true,"
      "\"sparse_index_dim\":128,\"sparse_num_index_heads\":4,\"sparse_topk_blocks\":16,"
      "\"sparse_block_size\":128,\"sparse_attention_freq\":[" +
      flags + "],\"sparse_disable_index_value\":[" + flags + "]}}";
  for (const std::string type : {"minimax_m3", "minimax_m3_text", "minimax_m3_vl_text"}) {
    const std::string text = "{\"model_type\":\"" + type + "\"," + keys;
    const ModelSpec model = read("{\"model_type\":\"minimax_m3_vl\",\"text_config\":" + text + "}");
    expect_cost(model, 122'880 + 14'592, 0);
    expect_cost(read(text), 122'880 + 14'592, 0);
    EXPECT_EQ(words(stream_named(model, "index_key")), "never all any replicate");
    EXPECT_EQ(model.groups.at(1).architecture, "block_sparse");
    EXPECT_EQ(to_string(model.groups.at(1).streams.at(0).access), "blocks(2048)");
  }
}

std::string nemotron_keys(int heads, int kv_heads, int mamba_heads, int state) {
  return "{\"model_type\":\"nemotron_h\",\"hidden_size\":8192,\"max_position_embeddings\":8192,"
         "\"num_attention_heads\":" +
         std::to_string(heads) + ",\"num_key_value_heads\":" + std::to_string(kv_heads) +
         ",\"attention_head_dim\":128,\"mamba_num_heads\":" + std::to_string(mamba_heads) +
         ",\"mamba_head_dim\":64,\"n_groups\":8,\"conv_kernel\":4,\"ssm_state_size\":" +
         std::to_string(state);
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Rows 107 (23 Mamba-2, 6 attention, 23 experts) and 108 (54 Mamba-2, 10 attention of 118).
TEST(MambaFamily, HasThePublishedBytesOfNemotronH) {
  const std::string nano = repeated("ME", 17) + repeated("M*E", 6);
  expect_cost(read(nemotron_keys(32, 2, 64, 128) + ",\"hybrid_override_pattern\":\"" + nano +
                   "\",\"num_hidden_layers\":52}"),
              6'144, 49'082'368);
  const std::string large = repeated("M-", 44) + repeated("M*-", 10);
  expect_cost(read(nemotron_keys(64, 8, 256, 256) + ",\"hybrid_override_pattern\":\"" + large +
                   "\",\"num_hidden_layers\":118}"),
              40'960, 912'605'184);
}

TEST(MambaFamily, ReadsNemotronLayersFromWordsAndItsPredictionBlock) {
  const ModelSpec model =
      read(nemotron_keys(64, 2, 256, 128) +
           ",\"layers_block_type\":[\"mamba\",\"moe\",\"attention\",\"mlp\"],"
           "\"mtp_layers_block_type\":[\"attention\",\"moe\"],\"num_nextn_predict_layers\":1,"
           "\"mamba_ssm_cache_dtype\":\"float32\"}");
  EXPECT_EQ(model.num_layers, 4u);
  EXPECT_EQ(slope_of(typed(model)), 1024);
  EXPECT_EQ(fixed_of(typed(model)), 3u * (16'384 + 2 * 8 * 128) * 2 + 256 * 64 * 128 * 4);
  EXPECT_EQ(num_draft_layers(model), 2u);
}

TEST(MambaFamily, RefusesUnknownLettersAndAContradictoryCount) {
  EXPECT_THAT(error_of(nemotron_keys(64, 8, 256, 256) + ",\"hybrid_override_pattern\":\"MX\"}"),
              HasSubstr("hybrid_override_pattern[1]: found \"X\", expected one of M * - E"));
  EXPECT_THAT(error_of(nemotron_keys(64, 8, 256, 256) +
                       ",\"hybrid_override_pattern\":\"M-\",\"num_hidden_layers\":3}"),
              HasSubstr("num_hidden_layers: found 3, expected 2"));
}

TEST(MambaFamily, RefusesTwoHeadDimsThatDiffer) {
  EXPECT_THAT(error_of(nemotron_keys(64, 8, 256, 256) +
                       ",\"hybrid_override_pattern\":\"M*\",\"head_dim\":64}"),
              HasSubstr("attention_head_dim: found 128, expected 64"));
}

// Mamba-Codestral-7B: 3 x (8,192 + 2 x 8 x 128) bf16 and 128 x 64 x 128 f32 in 64 layers.
TEST(MambaFamily, HasTheStatesOfMamba2) {
  expect_cost(read("{\"model_type\":\"mamba2\",\"num_hidden_layers\":64,\"hidden_size\":4096,"
                   "\"num_heads\":128,\"head_dim\":64,\"n_groups\":8,\"state_size\":128,"
                   "\"conv_kernel\":4,\"expand\":2,\"time_step_limit\":[0.0,Infinity]}"),
              0, 64u * (3 * 10'240 * 2 + 128 * 64 * 128 * 4));
}

// Mamba-2.8B: 3 x 5,120 and 16 x 5,120 elements in 64 layers.
TEST(MambaFamily, HasTheStatesOfMamba) {
  expect_cost(read("{\"model_type\":\"mamba\",\"num_hidden_layers\":64,\"hidden_size\":2560,"
                   "\"state_size\":16,\"conv_kernel\":4,\"expand\":2}"),
              0, 64u * (3 * 5120 * 2 + 16 * 5120 * 4));
}

// Falcon-Mamba-7B: 3 x 8,192 and 16 x 8,192 elements in 64 layers.
TEST(MambaFamily, HasTheStatesOfFalconMamba) {
  expect_cost(read("{\"model_type\":\"falcon_mamba\",\"num_hidden_layers\":64,\"hidden_size\":4096,"
                   "\"state_size\":16,\"conv_kernel\":4,\"expand\":2}"),
              0, 64u * (3 * 8192 * 2 + 16 * 8192 * 4));
}

TEST(MambaFamily, RefusesHeadsThatDoNotFillTheInnerSize) {
  EXPECT_THAT(error_of("{\"model_type\":\"mamba2\",\"hidden_size\":4096,\"num_heads\":128,"
                       "\"head_dim\":32,\"expand\":2}"),
              HasSubstr("head_dim: found 32, expected 64"));
}

// Jamba-v0.1: attention where i % 8 == 4, 28 layers of Mamba-1 with 8,192 channels.
TEST(MambaFamily, HasTheLayersOfJamba) {
  expect_cost(read("{\"model_type\":\"jamba\",\"num_hidden_layers\":32,\"hidden_size\":4096,"
                   "\"max_position_embeddings\":262144,\"num_attention_heads\":32,"
                   "\"num_key_value_heads\":8,\"attn_layer_period\":8,\"attn_layer_offset\":4,"
                   "\"mamba_expand\":2,\"mamba_d_state\":16,\"mamba_d_conv\":4}"),
              4 * 4096, 28u * (3 * 8192 * 2 + 16 * 8192 * 4));
}

const char* const kBambaMamba =
    "\"mamba_n_heads\":128,\"mamba_d_head\":64,\"mamba_n_groups\":1,\"mamba_d_state\":128,"
    "\"mamba_d_conv\":4,\"mamba_expand\":2";

TEST(MambaFamily, HasTheLayersOfBamba) {
  expect_cost(read("{\"model_type\":\"bamba\",\"num_hidden_layers\":32,\"hidden_size\":4096,"
                   "\"max_position_embeddings\":262144,\"num_attention_heads\":32,"
                   "\"num_key_value_heads\":8,\"attn_layer_indices\":[9,18,27]," +
                   std::string(kBambaMamba) + "}"),
              3 * 4096, 29u * (3 * (8192 + 2 * 128) * 2 + 128 * 64 * 128 * 4));
}

// granite-4.0-h-350m: 12 heads of 64 over 4 KV heads; 48 Mamba heads of 32, state 128.
TEST(MambaFamily, HasTheLayersOfGraniteHybrid) {
  expect_cost(read("{\"model_type\":\"granitemoehybrid\",\"num_hidden_layers\":4,"
                   "\"hidden_size\":768,\"max_position_embeddings\":32768,"
                   "\"num_attention_heads\":12,\"num_key_value_heads\":4,"
                   "\"layer_types\":[\"mamba\",\"mamba\",\"attention\",\"mamba\"],"
                   "\"mamba_n_heads\":48,\"mamba_d_head\":32,\"mamba_n_groups\":1,"
                   "\"mamba_d_state\":128,\"mamba_d_conv\":4,\"mamba_expand\":2}"),
              2 * 4 * 64 * 2, 3u * (3 * (1536 + 256) * 2 + 48 * 32 * 128 * 4));
}

// Falcon-H1: attention and Mamba-2 side by side in every layer.
TEST(MambaFamily, HasBothCachesInEveryLayerOfFalconH1) {
  const ModelSpec model = read(
      "{\"model_type\":\"falcon_h1\",\"num_hidden_layers\":24,\"hidden_size\":2048,"
      "\"max_position_embeddings\":131072,\"num_attention_heads\":8,"
      "\"num_key_value_heads\":2,\"head_dim\":128,\"mamba_d_ssm\":3072,"
      "\"mamba_n_heads\":48,\"mamba_d_head\":64,\"mamba_n_groups\":1,\"mamba_d_state\":256,"
      "\"mamba_d_conv\":4}");
  expect_cost(model, 24 * 2 * 2 * 128 * 2, 24u * (3 * (3072 + 512) * 2 + 3072 * 256 * 4));
  EXPECT_EQ(model.groups.front().architecture, "gqa+mamba2");
}

// Zamba2: the shared block attends over twice the hidden size; 32 heads of 160.
TEST(MambaFamily, HasTheSharedBlocksOfZamba2) {
  expect_cost(read("{\"model_type\":\"zamba2\",\"num_hidden_layers\":3,\"hidden_size\":2560,"
                   "\"max_position_embeddings\":4096,\"num_attention_heads\":32,"
                   "\"layers_block_type\":[\"mamba\",\"hybrid\",\"mamba\"],\"n_mamba_heads\":80,"
                   "\"mamba_ngroups\":1,\"mamba_d_state\":64,\"mamba_d_conv\":4,"
                   "\"mamba_expand\":2}"),
              2 * 32 * 160 * 2, 3u * (3 * (5120 + 128) * 2 + 80 * 64 * 64 * 4));
}

// LFM2-1.2B: 6 attention layers of 8 x 64; 10 convolutions of 2,048 channels over 3 tokens.
TEST(ShortConvFamily, HasThePublishedBytesOfLfm2) {
  const std::string conv2 = "\"conv\",\"conv\",\"full_attention\",";
  expect_cost(read("{\"model_type\":\"lfm2\",\"num_hidden_layers\":16,\"hidden_size\":2048,"
                   "\"max_position_embeddings\":128000,\"num_attention_heads\":32,"
                   "\"num_key_value_heads\":8,\"conv_L_cache\":3,\"layer_types\":[" +
                   conv2 + conv2 + conv2 +
                   "\"conv\",\"full_attention\",\"conv\",\"full_attention\",\"conv\","
                   "\"full_attention\",\"conv\"]}"),
              6 * 2048, 10u * 2048 * 2 * 2);
}

// LFM2-8B-A1B: 6 attention layers of 8 x 64; 18 convolutions of 2,048 channels over 3 tokens.
TEST(ShortConvFamily, HasTheBytesOfLfm2Moe) {
  expect_cost(read("{\"model_type\":\"lfm2_moe\",\"num_hidden_layers\":24,\"hidden_size\":2048,"
                   "\"max_position_embeddings\":128000,\"num_attention_heads\":32,"
                   "\"num_key_value_heads\":8,\"conv_L_cache\":3,"
                   "\"full_attn_idxs\":[2,6,10,14,18,21]}"),
              6 * 2 * 8 * 64 * 2, 18u * 2 * 2048 * 2);
}

TEST(RwkvFamily, HasFiveVectorsALayer) {
  expect_cost(read("{\"model_type\":\"rwkv\",\"num_hidden_layers\":24,\"hidden_size\":1024,"
                   "\"context_length\":1024}"),
              0, 24u * 5 * 1024 * 4);
}

}  // namespace
}  // namespace kvarto
