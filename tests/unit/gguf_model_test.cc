// GGUF keys to layers. Geometries and expected bytes: the models' published configurations and the
// rules of llama.cpp for their GGUF keys; totals by hand, in bf16 with f32 recurrent states.

#include "formats/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "samples/gguf_model.h"

namespace kvarto {
namespace {

using samples::as_bytes;
using samples::GgufModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<ModelSpec> read(const GgufModel& model) {
  const std::string bytes = model.str();
  const auto header = parse_gguf(as_bytes(bytes), "m.gguf");
  if (!header) return tl::unexpected<Error>(header.error());
  const GgufHeader* parts[] = {&*header};
  return read_gguf_model(parts, "m.gguf");
}

std::string error_of(const GgufModel& model) {
  const auto spec = read(model);
  return spec ? "accepted" : spec.error().message;
}

// Bytes per further token, and bytes that windows (full) and states take whatever the length.
struct Cost {
  double slope = 0;
  std::uint64_t fixed = 0;
};

Cost cost_of(const ModelSpec& untyped) {
  const auto spec = with_types(untyped, {});
  Cost cost;
  for (const LayerGroup& group : spec->groups) {
    for (const Stream& stream : group.streams) {
      if (stream.owner_layer) continue;
      const std::uint64_t bytes = row_bytes(stream).total() * group.layers.size();
      switch (stream.lifetime.kind) {
        case Lifetime::Kind::kNever:
          cost.slope += static_cast<double>(bytes) / static_cast<double>(stream.tokens_per_row);
          break;
        case Lifetime::Kind::kWindow:
        case Lifetime::Kind::kChunk:
          cost.fixed += bytes * stream.lifetime.tokens;
          break;
        default:
          cost.fixed += bytes;
      }
    }
  }
  return cost;
}

GgufModel dense(std::string_view arch, std::uint32_t layers, std::uint32_t hidden,
                std::uint32_t heads, std::uint32_t kv_heads) {
  GgufModel model(arch);
  model.u32("block_count", layers).u32("embedding_length", hidden);
  model.u32("attention.head_count", heads).u32("attention.head_count_kv", kv_heads);
  return model;
}

GgufModel& head_dims(GgufModel& model, std::uint32_t key, std::uint32_t value) {
  return model.u32("attention.key_length", key).u32("attention.value_length", value);
}

GgufModel& ssm(GgufModel& model, std::uint32_t inner, std::uint32_t state, std::uint32_t heads,
               std::uint32_t groups) {
  model.u32("ssm.conv_kernel", 4).u32("ssm.inner_size", inner).u32("ssm.state_size", state);
  return model.u32("ssm.time_step_rank", heads).u32("ssm.group_count", groups);
}

// DeepSeek-V3's attention as new converters write it.
GgufModel latent(std::string_view arch, std::uint32_t layers, std::uint32_t heads) {
  GgufModel model = dense(arch, layers, 7168, heads, 1);
  head_dims(model, 576, 512).u32("attention.kv_lora_rank", 512).u32("rope.dimension_count", 64);
  model.u32("attention.key_length_mla", 192).u32("attention.value_length_mla", 128);
  return model;
}

GgufModel& indexer(GgufModel& model, std::uint32_t heads, std::uint32_t top_k) {
  model.u32("attention.indexer.head_count", heads).u32("attention.indexer.key_length", 128);
  return model.u32("attention.indexer.top_k", top_k);
}

// 1 at every `every`-th entry, counted from 1, else 0; times `value`.
std::vector<std::uint32_t> every(std::uint32_t count, std::uint32_t interval, std::uint32_t value) {
  std::vector<std::uint32_t> list;
  for (std::uint32_t i = 1; i <= count; ++i) list.push_back(i % interval == 0 ? value : 0);
  return list;
}

struct Case {
  const char* name;
  std::function<GgufModel()> model;
  double slope;
  std::uint64_t fixed;
};

class GgufModels : public ::testing::TestWithParam<Case> {};

TEST_P(GgufModels, HasTheBytesOfItsKeys) {
  const auto spec = read(GetParam().model());
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_FALSE(spec->is_unknown_type);
  const Cost cost = cost_of(*spec);
  EXPECT_DOUBLE_EQ(cost.slope, GetParam().slope);
  EXPECT_EQ(cost.fixed, GetParam().fixed);
}

const Case kCases[] = {
    {"Llama3_8B", [] { return dense("llama", 32, 4096, 32, 8); }, 131'072, 0},
    {"Gpt2",
     [] {
       GgufModel model("gpt2");  // no head_count_kv: as many as heads
       return model.u32("block_count", 12)
           .u32("embedding_length", 768)
           .u32("attention.head_count", 12);
     },
     12 * 2 * 768 * 2, 0},
    {"Gemma7B_head_dim_is_read",
     [] {
       GgufModel model = dense("gemma", 28, 3072, 16, 16);
       return head_dims(model, 256, 256);
     },
     458'752, 0},
    {"Gemma2_27B_even_layers_local",
     [] {
       GgufModel model = dense("gemma2", 46, 4608, 32, 16);
       return head_dims(model, 128, 128).u32("attention.sliding_window", 4096);
     },
     188'416, 771'751'936},
    {"Gemma3_27B_five_local_to_one",
     [] {
       GgufModel model = dense("gemma3", 62, 5376, 32, 16);
       return head_dims(model, 128, 128).u32("attention.sliding_window", 1024);
     },
     81'920, 436'207'616},
    {"Gemma3n_E4B_shares_the_last_15_layers",
     [] {
       GgufModel model = dense("gemma3n", 35, 2048, 8, 2);
       return head_dims(model, 256, 256).u32("attention.sliding_window", 512);
     },
     8192, 16'777'216},
    {"Gemma4_26B_other_heads_in_windows",
     [] {
       std::vector<std::uint32_t> kv_heads(30, 8);
       std::vector<bool> windowed(30, true);
       for (std::size_t i = 5; i < 30; i += 6) {
         kv_heads[i] = 2;
         windowed[i] = false;
       }
       GgufModel model("gemma4");
       model.u32("block_count", 30).u32("embedding_length", 2816).u32("attention.head_count", 16);
       model.u32s("attention.head_count_kv", kv_heads);
       head_dims(model, 512, 512).u32("attention.key_length_swa", 256);
       model.u32("attention.value_length_swa", 256).u32("attention.sliding_window", 1024);
       return model.bools("attention.sliding_window_pattern", windowed);
     },
     20'480, 209'715'200},
    {"CommandR7B_three_local_to_one",
     [] { return dense("cohere2", 32, 4096, 32, 8).u32("attention.sliding_window", 4096); }, 32'768,
     402'653'184},
    {"GptOss20B_even_layers_local",
     [] {
       GgufModel model = dense("gpt-oss", 24, 2880, 64, 8);
       return head_dims(model, 64, 64).u32("attention.sliding_window", 128);
     },
     24'576, 3'145'728},
    {"Llama4Scout_chunks_of_8192", [] { return dense("llama4", 48, 5120, 40, 8); }, 49'152,
     1'207'959'552},
    {"MiMoV2Flash_k_wider_than_v",
     [] {
       // 9 of 48 layers are full: 0, 5, 11, 17, ...
       std::vector<std::uint32_t> kv_heads(48, 8);
       std::vector<bool> windowed(48, true);
       for (const std::size_t i : {0u, 5u, 11u, 17u, 23u, 29u, 35u, 41u, 47u}) {
         kv_heads[i] = 4;
         windowed[i] = false;
       }
       GgufModel model("mimo2");
       model.u32("block_count", 48).u32("embedding_length", 4096).u32("attention.head_count", 64);
       model.u32s("attention.head_count_kv", kv_heads).u32("attention.sliding_window", 128);
       head_dims(model, 192, 128).bools("attention.sliding_window_pattern", windowed);
       return model;
     },
     23'040, 25'559'040},
    {"Laguna_full_layer_comes_first",
     [] {
       // 40 layers, 10 full of 8 x 128; 30 of 512 tokens.
       GgufModel model = dense("laguna", 40, 6144, 48, 8);
       return head_dims(model, 128, 128).u32("attention.sliding_window", 512);
     },
     10 * 4096, std::uint64_t{30} * 4096 * 512},
    {"DeepSeekV3_latent_rows", [] { return latent("deepseek2", 61, 128); }, 70'272, 0},
    {"DeepSeekV2Lite_old_file_full_heads",
     [] {
       GgufModel model = dense("deepseek2", 27, 2048, 16, 16);
       return head_dims(model, 192, 128)
           .u32("attention.kv_lora_rank", 512)
           .u32("rope.dimension_count", 64);
     },
     27 * 16 * (192 + 128) * 2, 0},
    {"DeepSeekV32_latent_and_index_keys",
     [] {
       GgufModel model = latent("deepseek32", 61, 128);
       return indexer(model, 64, 2048);
     },
     78'324, 0},
    {"GLM52_21_of_78_index_caches",
     [] {
       GgufModel model = latent("glm-dsa", 78, 64);
       std::vector<bool> full(78);  // 0, 1, 2, then every fourth
       for (std::size_t i = 0; i < 78; ++i) full[i] = i < 2 || i % 4 == 2;
       return indexer(model, 32, 2048).bools("attention.indexer.types", full);
     },
     92'628, 0},
    {"MistralSmall4_row_of_320",
     [] {
       GgufModel model = dense("mistral4", 36, 4096, 32, 1);
       head_dims(model, 320, 256)
           .u32("attention.kv_lora_rank", 256)
           .u32("rope.dimension_count", 64);
       return model.u32("attention.key_length_mla", 128).u32("attention.value_length_mla", 128);
     },
     23'040, 0},
    {"Qwen3Next_three_states_to_one",
     [] {
       GgufModel model = dense("qwen3next", 48, 2048, 16, 2);
       return ssm(head_dims(model, 256, 256), 32 * 128, 128, 32, 16)
           .u32("full_attention_interval", 4);
     },
     24'576, 77'266'944},
    {"Qwen35_27B_by_list",
     [] {
       std::vector<bool> recurrent(64);
       for (std::size_t i = 0; i < 64; ++i) recurrent[i] = (i + 1) % 4 != 0;
       GgufModel model = dense("qwen35", 64, 5120, 24, 4);
       return ssm(head_dims(model, 256, 256), 48 * 128, 128, 48, 16)
           .bools("attention.recurrent_layers", recurrent);
     },
     65'536, 153'944'064},
    {"Qwen38_blocks_by_index_keys",
     [] {
       GgufModel model = dense("qwen4exp", 48, 2560, 24, 2);
       ssm(head_dims(model, 256, 256), 48 * 128, 128, 48, 16);
       return indexer(model, 4, 2048).u32("attention.compress_ratios", 4);
     },
     25'344, 115'458'048},
    {"MiniMaxM3_index_keys_behind_dense_layers",
     [] {
       // 60 layers of 4 x 128; 57 of them with one index key of 128 bf16 a token.
       GgufModel model = dense("minimax-m3", 60, 6144, 64, 4);
       indexer(head_dims(model, 128, 128), 4, 16).u32("attention.indexer.block_size", 128);
       return model.u32("leading_dense_block_count", 3);
     },
     122'880 + 57 * 128 * 2, 0},
    {"KimiLinear_states_where_kv_heads_are_0",
     [] {
       std::vector<std::uint32_t> kv_heads = every(27, 4, 32);
       kv_heads[26] = 32;
       GgufModel model("kimi-linear");
       model.u32("block_count", 27).u32("embedding_length", 2304).u32("attention.head_count", 32);
       model.u32s("attention.head_count_kv", kv_heads).u32("ssm.conv_kernel", 4);
       model.u32("kda.head_dim", 128).u32("attention.kv_lora_rank", 512);
       head_dims(model, 576, 512).u32("attention.key_length_mla", 192);
       return model.u32("attention.value_length_mla", 128).u32("rope.dimension_count", 64);
     },
     8064, 43'417'600},
    {"GLM53Flash_pooled_index_without_rope",
     [] {
       GgufModel model("glm5next");
       model.u32("block_count", 46).u32("nextn_predict_layers", 1).u32("embedding_length", 4096);
       std::vector<std::uint32_t> kv_heads = every(46, 4, 1);
       kv_heads[45] = 1;
       model.u32("attention.head_count", 64).u32s("attention.head_count_kv", kv_heads);
       head_dims(model, 512, 512).u32("attention.kv_lora_rank", 512).u32("rope.dimension_count", 0);
       model.u32("attention.key_length_mla", 256).u32("attention.value_length_mla", 256);
       indexer(model, 32, 2048).u32("attention.indexer.kpool", 4).u32("ssm.conv_kernel", 4);
       return model.u32("kda.head_dim", 128);
     },
     11'627, 147'619'840},
    {"NemotronH_layers_without_anything",
     [] {
       // MEMEM*... : 52 layers, 23 Mamba-2 (no KV heads, no MLP), 6 attention, 23 MLP.
       std::vector<std::uint32_t> kv_heads(52, 0);
       std::vector<std::uint32_t> mlp(52, 0);
       for (std::size_t i = 23; i < 29; ++i) kv_heads[i] = 2;
       for (std::size_t i = 29; i < 52; ++i) mlp[i] = 1856;
       GgufModel model("nemotron_h_moe");
       model.u32("block_count", 52).u32("embedding_length", 2688).u32("attention.head_count", 32);
       model.u32s("attention.head_count_kv", kv_heads).u32s("feed_forward_length", mlp);
       return ssm(head_dims(model, 128, 128), 64 * 64, 128, 64, 8);
     },
     6144, 49'082'368},
    {"LFM2_short_convolutions",
     [] {
       // 16 layers, 6 with attention of 8 x 64; 10 keep 2 columns of 2048.
       std::vector<std::uint32_t> kv_heads(16, 0);
       for (const std::size_t i : {2u, 5u, 8u, 10u, 12u, 14u}) kv_heads[i] = 8;
       GgufModel model("lfm2");
       model.u32("block_count", 16).u32("embedding_length", 2048).u32("attention.head_count", 32);
       return model.u32s("attention.head_count_kv", kv_heads).u32("shortconv.l_cache", 3);
     },
     6 * 8 * 64 * 2 * 2, 10 * 2048 * 2 * 2},
    {"Mamba28B_no_heads_at_all",
     [] {
       // 64 layers, inner 5120: 3 columns of bf16, 16 elements of f32 a channel.
       GgufModel model("mamba");
       model.u32("block_count", 64).u32("embedding_length", 2560).u32("attention.head_count", 0);
       model.u32("ssm.conv_kernel", 4).u32("ssm.inner_size", 5120).u32("ssm.state_size", 16);
       return model.u32("ssm.time_step_rank", 160);
     },
     0, std::uint64_t{64} * 5120 * (3 * 2 + 16 * 4)},
    {"FalconH1_attention_beside_state",
     [] {
       // 36 layers: 2 KV heads x 64; inner 1536 of 24 heads, 1 group, state 128.
       GgufModel model = dense("falcon-h1", 36, 1024, 8, 2);
       return ssm(head_dims(model, 64, 64), 1536, 128, 24, 1);
     },
     36 * 2 * 64 * 2 * 2, std::uint64_t{36} * (3 * (1536 + 2 * 128) * 2 + 1536 * 128 * 4)},
    {"GLM45Air_leaves_the_draft_out",
     [] {
       GgufModel model = dense("glm4moe", 47, 4096, 96, 8);
       return head_dims(model, 128, 128).u32("nextn_predict_layers", 1);
     },
     188'416, 0},
    {"Deci_layers_without_attention",
     [] {
       GgufModel model("deci");
       model.u32("block_count", 3).u32("embedding_length", 256);
       model.u32s("attention.head_count", {2, 0, 2}).u32s("attention.head_count_kv", {1, 0, 2});
       return head_dims(model, 128, 128);
     },
     3 * 128 * 2 * 2, 0},
};

INSTANTIATE_TEST_SUITE_P(All, GgufModels, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

// Slopes: 21 x (584 + 68) / 4 + 20 x 584 / 128 under the release's own formats.
TEST(GgufModel, ReadsDeepSeekV4FlashToItsOwnSlope) {
  std::vector<std::uint32_t> ratios = {0, 0};
  for (std::uint32_t i = 2; i < 43; ++i) ratios.push_back(i % 2 == 0 ? 4 : 128);
  ratios.push_back(0);  // published lists have one entry for a prediction block
  GgufModel model = dense("deepseek4", 43, 4096, 64, 1);
  head_dims(model, 512, 512).u32s("attention.compress_ratios", ratios);
  model.u32("attention.sliding_window", 128).u32("rope.dimension_count", 64);
  const auto spec = read(indexer(model, 64, 512));
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  const auto packed = with_types(*spec, {.key = "fp8_ds_mla", .value = "fp8_ds_mla", .index = ""});
  ASSERT_TRUE(packed.has_value()) << packed.error().message;
  double slope = 0;
  for (const LayerGroup& group : packed->groups) {
    for (const Stream& stream : group.streams) {
      if (stream.lifetime.kind != Lifetime::Kind::kNever) continue;
      slope += static_cast<double>(row_bytes(stream).total() * group.layers.size()) /
               static_cast<double>(stream.tokens_per_row);
    }
  }
  EXPECT_DOUBLE_EQ(slope, 3514.25);
}

TEST(GgufModel, PutsPredictionBlocksIntoTheDraft) {
  GgufModel model = dense("glm4moe", 47, 12288, 96, 8);
  const auto spec = read(model.u32("nextn_predict_layers", 1));
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_EQ(spec->num_layers, 46u);
  ASSERT_EQ(spec->draft_groups.size(), 1u);
  EXPECT_THAT(spec->draft_groups[0].layers, ElementsAre(46u));
}

TEST(GgufModel, LetsTensorsDecideWhetherPredictionBlocksAreThere) {
  const auto model = [] { return dense("glm4moe", 3, 64, 4, 2).u32("nextn_predict_layers", 1); };
  const auto with = read(model().tensor("blk.2.nextn.eh_proj.weight", 8, 8));
  EXPECT_EQ(with->num_layers, 2u);
  EXPECT_EQ(with->draft_groups.size(), 1u);
  const auto counted_otherwise = read(model().tensor("blk.2.attn_norm.weight", 8, 8));
  EXPECT_EQ(counted_otherwise->num_layers, 3u);
  EXPECT_TRUE(counted_otherwise->draft_groups.empty());
  const auto without = read(model().tensor("blk.1.attn_norm.weight", 8, 8));
  EXPECT_EQ(without->num_layers, 2u);
  EXPECT_TRUE(without->draft_groups.empty());
}

TEST(GgufModel, SharedLayersNameTheirOwnerOfTheSameKind) {
  GgufModel model = dense("gemma4", 6, 64, 4, 2);
  model.u32("attention.sliding_window", 8).u32("attention.shared_kv_layers", 2);
  const auto spec =
      read(model.bools("attention.sliding_window_pattern", {true, true, false, true, true, false}));
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  std::vector<std::optional<std::uint32_t>> owners(6);
  for (const LayerGroup& group : spec->groups) {
    for (const std::uint32_t layer : group.layers) owners[layer] = group.streams[0].owner_layer;
  }
  EXPECT_THAT(owners, ElementsAre(std::nullopt, std::nullopt, std::nullopt, std::nullopt, 3u, 2u));
}

TEST(GgufModel, SharedIndexersFollowTheTensorsWhereNoKeySaysSo) {
  GgufModel model = latent("glm-dsa", 3, 64);
  indexer(model, 32, 2048).tensor("blk.0.indexer.proj.weight", 8, 8);
  const auto spec = read(model.tensor("blk.2.indexer.proj.weight", 8, 8));
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_EQ(spec->groups[0].layers, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(spec->groups[1].streams[0].selection_layer, 0u);
}

TEST(GgufModel, ReadsUnknownArchitecturesByTheirKeysWithANote) {
  std::vector<std::uint32_t> kv_heads = {0, 4};
  GgufModel model("novelarch");
  model.u32("block_count", 2).u32("embedding_length", 64).u32("attention.head_count", 8);
  model.u32s("attention.head_count_kv", kv_heads);
  const auto spec = read(ssm(model, 128, 16, 4, 1));
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_TRUE(spec->is_unknown_type);
  EXPECT_THAT(spec->notes.at(0), HasSubstr("novelarch"));
  EXPECT_THAT(architecture_names(*spec), ElementsAre("mamba2", "gqa"));
}

TEST(GgufModel, NotesAWindowThatIsNotApplied) {
  const auto spec = read(dense("phi3", 2, 64, 4, 4).u32("attention.sliding_window", 2047));
  ASSERT_TRUE(spec.has_value());
  EXPECT_THAT(spec->notes.at(0), HasSubstr("2047"));
  EXPECT_THAT(architecture_names(*spec), ElementsAre("mha"));
}

TEST(GgufModel, NamesTheKeyThatIsMissingOrContradictory) {
  GgufModel none("llama");
  EXPECT_THAT(error_of(none), HasSubstr("m.gguf: llama.block_count: missing"));
  EXPECT_THAT(error_of(none.u32("block_count", 2)),
              HasSubstr("llama.attention.head_count: missing"));
  EXPECT_THAT(error_of(dense("llama", 0, 64, 8, 8)), HasSubstr("llama.block_count: found 0"));
  EXPECT_THAT(error_of(dense("llama", 5000, 64, 8, 8)), HasSubstr("llama.block_count: found 5000"));
  EXPECT_THAT(error_of(dense("llama", 1, 64, 8, 3)), HasSubstr("head_count_kv: found 3"));
  EXPECT_THAT(error_of(dense("llama", 1, 64, 8, 0)), HasSubstr("head_count_kv: found 0"));
  EXPECT_THAT(error_of(dense("llama", 1, 100, 8, 8)), HasSubstr("head_count: found 8"));
  EXPECT_THAT(error_of(dense("gemma3", 6, 64, 8, 8)),
              HasSubstr("gemma3.attention.sliding_window: missing"));
  GgufModel list = GgufModel("llama").u32("block_count", 3).u32("embedding_length", 64);
  list.u32("attention.head_count", 4);
  EXPECT_THAT(error_of(list.u32s("attention.head_count_kv", {4, 4})),
              HasSubstr("llama.attention.head_count_kv: found a list of 2"));
  EXPECT_THAT(error_of(dense("llama", 2, 64, 8, 8).u32("nextn_predict_layers", 2)),
              HasSubstr("nextn_predict_layers: found 2, expected fewer than block_count 2"));
  EXPECT_THAT(error_of(latent("deepseek2", 1, 8).u32("vocab_size", 1)), "accepted");
  EXPECT_THAT(error_of(GgufModel("bert").u32("block_count", 1)), HasSubstr("keeps no cache"));
}

TEST(GgufModel, ChecksTensorsAgainstTheKeysLayerByLayer) {
  const auto model = [] { return dense("llama", 2, 64, 8, 4); };
  EXPECT_EQ(error_of(model().tensor("blk.1.attn_k.weight", 64, 32)), "accepted");
  EXPECT_EQ(error_of(model().tensor("blk.1.attn_k.weight", 64, 64)),
            "m.gguf: tensor \"blk.1.attn_k.weight\": found 64 rows, expected 32 (4 KV heads x 8)");
  EXPECT_THAT(error_of(model().tensor("blk.0.attn_v.weight", 64, 33)),
              HasSubstr("found 33 rows, expected 32"));
  EXPECT_EQ(error_of(model().tensor("blk.0.attn_qkv.weight", 64, 128)), "accepted");
  EXPECT_THAT(error_of(model().tensor("blk.0.attn_qkv.weight", 64, 192)),
              HasSubstr("found 192 rows, expected 128 (8 query heads x 8 + 32 + 32"));
  const auto mla = [] { return latent("deepseek2", 1, 4); };
  EXPECT_EQ(error_of(mla().tensor("blk.0.attn_kv_a_mqa.weight", 7168, 576)), "accepted");
  EXPECT_THAT(error_of(mla().tensor("blk.0.attn_kv_a_mqa.weight", 7168, 512)),
              HasSubstr("found 512 rows, expected 576 (latent 512 + rope 64)"));
}

TEST(GgufModel, ChecksSplitLatentTensorsHeadByHead) {
  // [nope, latent, heads] and [latent, v, heads]; 4 heads of DeepSeek-V3's dims.
  const auto file = [](std::uint64_t latent_dim, std::uint64_t v_dim) {
    samples::GgufWriter writer(2, 9);
    writer.string("general.architecture", "deepseek2").u32("deepseek2.block_count", 1);
    writer.u32("deepseek2.attention.head_count", 4).u32("deepseek2.attention.kv_lora_rank", 512);
    writer.u32("deepseek2.attention.key_length", 576).u32("deepseek2.rope.dimension_count", 64);
    writer.u32("deepseek2.attention.key_length_mla", 192);
    writer.u32("deepseek2.attention.value_length_mla", 128).u32("deepseek2.vocab_size", 7);
    writer.tensor("blk.0.attn_k_b.weight", {128, latent_dim, 4}, 0, 0);
    const std::uint64_t first = 128 * latent_dim * 4 * 4;
    writer.tensor("blk.0.attn_v_b.weight", {512, v_dim, 4}, 0, first);
    return writer.payload(first + 512 * v_dim * 4 * 4).str();
  };
  const auto error = [](const std::string& bytes) {
    const auto header = parse_gguf(as_bytes(bytes), "m.gguf").value();
    const GgufHeader* parts[] = {&header};
    const auto spec = read_gguf_model(parts, "m.gguf");
    return spec ? std::string("accepted") : spec.error().message;
  };
  EXPECT_EQ(error(file(512, 128)), "accepted");
  EXPECT_THAT(error(file(256, 128)), HasSubstr("found 256 rows, expected 512 (the latent)"));
  EXPECT_THAT(error(file(512, 64)), HasSubstr("found 64 rows, expected 128 (one head's V)"));
}

TEST(GgufModel, RefusesDeepSeekV41WhoseKeysAreNotAgreed) {
  EXPECT_THAT(error_of(dense("deepseek41", 1, 64, 8, 1)), HasSubstr("plan from their config.json"));
}

TEST(GgufModel, SumsTheBytesOfItsTensors) {
  const auto spec = read(dense("llama", 1, 64, 8, 4).tensor("a", 3, 5).tensor("b", 64, 2));
  EXPECT_EQ(spec->weight_bytes, 3u * 5 * 4 + 64u * 2 * 4);
}

}  // namespace
}  // namespace kvarto
