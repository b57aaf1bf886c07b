// Models whose weights are safetensors, opened through the public interface.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kvarto/model_file.h"
#include "kvarto/tensor_file.h"
#include "samples/folders.h"
#include "samples/gguf_model.h"
#include "samples/safetensors_writer.h"

namespace kvarto {
namespace {

using samples::safetensors;
using samples::TemporaryFolder;
using ::testing::HasSubstr;

constexpr const char* kLlama = R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":64,
  "num_attention_heads":8,"num_key_value_heads":4,"max_position_embeddings":128,"vocab_size":10})";

// A file with one f32 matrix of that name.
std::string matrix(const std::string& name, int rows, int columns) {
  const int bytes = rows * columns * 4;
  return safetensors("{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(rows) +
                         "," + std::to_string(columns) + "],\"data_offsets\":[0," +
                         std::to_string(bytes) + "]}}",
                     static_cast<std::uint64_t>(bytes));
}

TEST(SafetensorsModel, TakesGeometryFromTheConfigAndWeightsFromTheHeader) {
  const TemporaryFolder folder;
  folder.write("config.json", kLlama);
  const std::string path =
      folder.write("model.safetensors", matrix("model.layers.1.self_attn.k_proj.weight", 32, 64));
  for (const std::string& named : {path, folder.path()}) {
    const auto spec = open_model(named);
    ASSERT_TRUE(spec.has_value()) << spec.error().message;
    EXPECT_EQ(spec->num_layers, 2u);
    EXPECT_EQ(spec->weight_bytes, 32u * 64 * 4);
  }
}

TEST(SafetensorsModel, NamesTheMissingConfig) {
  const TemporaryFolder folder;
  const auto spec = open_model(folder.write("model.safetensors", safetensors("{}", 0)));
  ASSERT_FALSE(spec.has_value());
  EXPECT_EQ(spec.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(spec.error().message, HasSubstr("config.json: missing"));
}

TEST(SafetensorsModel, SaysWhatIsWrongWithTheFileBeforeWhatIsMissingBesideIt) {
  const TemporaryFolder folder;
  const auto spec = open_model(folder.write("model.safetensors", safetensors("[]", 0)));
  EXPECT_EQ(spec.error().code, ErrorCode::kCorruptData);
}

struct Projection {
  const char* name;
  int rows;
  int columns;
  const char* message;  // "" = accepted
};

TEST(SafetensorsModel, ChecksProjectionsAgainstTheConfig) {
  const Projection kProjections[] = {
      {"model.layers.0.self_attn.k_proj.weight", 32, 64, ""},
      {"model.layers.0.self_attn.k_proj.weight", 64, 64,
       "found 64 rows, expected 32 (4 KV heads x 8)"},
      {"model.layers.1.self_attn.v_proj.weight", 8, 64, "found 8 rows, expected 32"},
      {"language_model.model.layers.1.self_attn.v_proj.weight", 8, 64, "found 8 rows"},
      {"vision_tower.layers.1.self_attn.v_proj.weight", 8, 64, ""},
      {"model.layers.2.self_attn.v_proj.weight", 8, 64, ""},  // no such layer in the config
      {"transformer.h.0.attn.c_attn.weight", 64, 128, ""},    // GPT-2's [inputs, outputs]
      {"transformer.h.0.attn.c_attn.weight", 64, 192, "expected 128"},
      {"model.layers.0.self_attn.qkv_proj.weight", 128, 64, ""},
      {"model.layers.0.self_attn.qkv_proj.weight", 192, 64, "found 192 rows, expected 128"},
  };
  for (const Projection& projection : kProjections) {
    const TemporaryFolder folder;
    folder.write("config.json", kLlama);
    const auto spec = open_model(folder.write(
        "model.safetensors", matrix(projection.name, projection.rows, projection.columns)));
    const std::string message = spec ? "" : spec.error().message;
    EXPECT_THAT(message, HasSubstr(projection.message)) << projection.name;
    EXPECT_EQ(message.empty(), std::string(projection.message).empty()) << message;
  }
}

TEST(SafetensorsModel, CountsAllShardsWhicheverIsNamed) {
  const TemporaryFolder folder;
  folder.write("config.json", kLlama);
  const std::string first = folder.write("model-00001-of-00002.safetensors", matrix("a", 2, 3));
  folder.write("model-00002-of-00002.safetensors", matrix("b", 4, 5));
  const auto alone = open_model(first);
  ASSERT_TRUE(alone.has_value()) << alone.error().message;
  EXPECT_EQ(alone->weight_bytes, 0u);
  EXPECT_THAT(alone->notes.back(), HasSubstr("one shard of several"));

  const std::string index = folder.write("model.safetensors.index.json",
                                         R"({"weight_map":{"a":"model-00001-of-00002.safetensors",
                                             "b":"model-00002-of-00002.safetensors"}})");
  for (const std::string& named : {first, index, folder.path()}) {
    const auto spec = open_model(named);
    ASSERT_TRUE(spec.has_value()) << spec.error().message;
    EXPECT_EQ(spec->weight_bytes, (2u * 3 + 4 * 5) * 4);
  }
}

TEST(SafetensorsModel, PlansAFolderWithoutSomeShardsAndSaysSo) {
  const TemporaryFolder folder;
  folder.write("config.json", kLlama);
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"gone.safetensors"}})");
  const auto spec = open_model(folder.path());
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_THAT(spec->notes.back(), HasSubstr("gone.safetensors: missing"));
  EXPECT_EQ(spec->weight_bytes, 0u);
}

TEST(GgufFile, OpensByNameAndByMagicAndIsKnownWithoutItsPart) {
  samples::GgufModel model("llama");
  model.u32("block_count", 2).u32("embedding_length", 64).u32("attention.head_count", 8);
  const TemporaryFolder folder;
  for (const char* name : {"tiny.gguf", "tiny-00001-of-00001.gguf", "tiny"}) {
    const auto spec = open_model(folder.write(name, model.str()));
    ASSERT_TRUE(spec.has_value()) << spec.error().message;
    EXPECT_EQ(spec->name, "tiny");
    EXPECT_EQ(spec->num_layers, 2u);
  }
}

TEST(SharedCollection, OpensEveryModelAndVocabulary) {
  const auto shared = samples::shared_folder();
  if (!shared) GTEST_SKIP() << "no shared collection beside the repository";
  int num_opened = 0;
  for (const char* part : {"vocab", "models"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(*shared / part)) {
      const std::string path = entry.path().string();
      if (!path.ends_with(".gguf") && !path.ends_with(".safetensors") &&
          !path.ends_with(".safetensors.index.json")) {
        continue;
      }
      const auto spec = open_model(path);
      EXPECT_TRUE(spec.has_value()) << spec.error().message;
      EXPECT_TRUE(read_tensor_file(path).has_value()) << path;
      ++num_opened;
    }
  }
  EXPECT_GT(num_opened, 0);
}

}  // namespace
}  // namespace kvarto
