// One model, two files: its GGUF keys and its config.json must describe the same layers.

#include <gtest/gtest.h>

#include <functional>

#include "formats/gguf_model.h"
#include "kvarto/model_file.h"
#include "samples/gguf_model.h"

namespace kvarto {
namespace {

using samples::GgufModel;

struct Pair {
  const char* name;
  std::function<GgufModel()> gguf;
  const char* config;
};

class GgufAndConfig : public ::testing::TestWithParam<Pair> {};

TEST_P(GgufAndConfig, DescribeTheSameLayers) {
  const std::string bytes = GetParam().gguf().str();
  const auto header = parse_gguf(samples::as_bytes(bytes), "m.gguf");
  ASSERT_TRUE(header.has_value()) << header.error().message;
  const GgufHeader* parts[] = {&*header};
  const auto from_gguf = read_gguf_model(parts, "m.gguf");
  const auto from_config = read_config_json(GetParam().config, "config.json");
  ASSERT_TRUE(from_gguf.has_value()) << from_gguf.error().message;
  ASSERT_TRUE(from_config.has_value()) << from_config.error().message;
  EXPECT_EQ(from_gguf->num_layers, from_config->num_layers);
  EXPECT_EQ(from_gguf->hidden_size, from_config->hidden_size);
  ASSERT_EQ(from_gguf->groups.size(), from_config->groups.size());
  for (std::size_t i = 0; i < from_gguf->groups.size(); ++i) {
    const LayerGroup& ours = from_gguf->groups[i];
    const LayerGroup& theirs = from_config->groups[i];
    EXPECT_EQ(ours.architecture, theirs.architecture);
    EXPECT_EQ(ours.layers, theirs.layers);
    EXPECT_EQ(ours.query, theirs.query) << ours.architecture;
    EXPECT_EQ(ours.streams, theirs.streams) << ours.architecture;
  }
}

GgufModel frame(const char* architecture, std::uint32_t layers, std::uint32_t hidden,
                std::uint32_t heads) {
  GgufModel model(architecture);
  model.u32("block_count", layers).u32("embedding_length", hidden);
  return model.u32("attention.head_count", heads);
}

GgufModel llama() { return frame("llama", 4, 4096, 32).u32("attention.head_count_kv", 8); }

GgufModel gemma3() {
  GgufModel model = frame("gemma3", 12, 1152, 4).u32("attention.head_count_kv", 1);
  model.u32("attention.key_length", 256).u32("attention.value_length", 256);
  return model.u32("attention.sliding_window", 512);
}

GgufModel deepseek_v3() {
  GgufModel model = frame("deepseek2", 3, 7168, 128).u32("attention.head_count_kv", 1);
  model.u32("attention.key_length", 576).u32("attention.value_length", 512);
  model.u32("attention.kv_lora_rank", 512).u32("rope.dimension_count", 64);
  return model.u32("attention.key_length_mla", 192).u32("attention.value_length_mla", 128);
}

GgufModel qwen3_next() {
  GgufModel model = frame("qwen3next", 8, 2048, 16).u32("attention.head_count_kv", 2);
  model.u32("attention.key_length", 256).u32("attention.value_length", 256);
  model.u32("ssm.conv_kernel", 4).u32("ssm.inner_size", 4096).u32("ssm.state_size", 128);
  model.u32("ssm.time_step_rank", 32).u32("ssm.group_count", 16);
  return model.u32("full_attention_interval", 4);
}

GgufModel mamba2() {
  GgufModel model = frame("mamba2", 2, 4096, 0);
  model.u32("ssm.conv_kernel", 4).u32("ssm.inner_size", 8192).u32("ssm.state_size", 128);
  return model.u32("ssm.time_step_rank", 128).u32("ssm.group_count", 8);
}

GgufModel lfm2() {
  GgufModel model = frame("lfm2", 3, 2048, 32).u32s("attention.head_count_kv", {0, 0, 8});
  return model.u32("shortconv.l_cache", 3);
}

GgufModel kimi_linear() {
  GgufModel model = frame("kimi-linear", 4, 2304, 32);
  model.u32s("attention.head_count_kv", {0, 0, 0, 32}).u32("ssm.conv_kernel", 4);
  model.u32("kda.head_dim", 128).u32("attention.kv_lora_rank", 512);
  model.u32("attention.key_length", 576).u32("attention.value_length", 512);
  model.u32("attention.key_length_mla", 192).u32("attention.value_length_mla", 128);
  return model.u32("rope.dimension_count", 64);
}

const Pair kPairs[] = {
    {"Llama", llama,
     R"({"model_type":"llama","num_hidden_layers":4,"hidden_size":4096,"num_attention_heads":32,
         "num_key_value_heads":8,"max_position_embeddings":8192})"},
    {"Gemma3", gemma3,
     R"({"model_type":"gemma3_text","num_hidden_layers":12,"hidden_size":1152,
         "num_attention_heads":4,"num_key_value_heads":1,"head_dim":256,"sliding_window":512,
         "sliding_window_pattern":6,"max_position_embeddings":32768})"},
    {"DeepSeekV3", deepseek_v3,
     R"({"model_type":"deepseek_v3","num_hidden_layers":3,"hidden_size":7168,
         "num_attention_heads":128,"num_key_value_heads":128,"kv_lora_rank":512,
         "qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,
         "max_position_embeddings":163840})"},
    {"Qwen3Next", qwen3_next,
     R"({"model_type":"qwen3_next","num_hidden_layers":8,"hidden_size":2048,
         "num_attention_heads":16,"num_key_value_heads":2,"head_dim":256,
         "linear_num_key_heads":16,"linear_num_value_heads":32,"linear_key_head_dim":128,
         "linear_value_head_dim":128,"linear_conv_kernel_dim":4,"full_attention_interval":4,
         "max_position_embeddings":262144})"},
    {"Mamba2", mamba2,
     R"({"model_type":"mamba2","num_hidden_layers":2,"hidden_size":4096,"num_heads":128,
         "head_dim":64,"n_groups":8,"state_size":128,"conv_kernel":4,"expand":2})"},
    {"Lfm2", lfm2,
     R"({"model_type":"lfm2","num_hidden_layers":3,"hidden_size":2048,"num_attention_heads":32,
         "num_key_value_heads":8,"conv_L_cache":3,"max_position_embeddings":128000,
         "layer_types":["conv","conv","full_attention"]})"},
    {"KimiLinear", kimi_linear,
     R"({"model_type":"kimi_linear","num_hidden_layers":4,"hidden_size":2304,
         "num_attention_heads":32,"num_key_value_heads":32,"kv_lora_rank":512,
         "qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,"model_max_length":1048576,
         "linear_attn_config":{"num_heads":32,"head_dim":128,"short_conv_kernel_size":4,
         "kda_layers":[1,2,3],"full_attn_layers":[4]}})"},
};

INSTANTIATE_TEST_SUITE_P(All, GgufAndConfig, ::testing::ValuesIn(kPairs),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kvarto
