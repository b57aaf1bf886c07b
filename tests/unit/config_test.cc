// open_model() and read_config_json(): files, folders, names and what is wrong with them.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "kvarto/model_file.h"
#include "samples/folders.h"
#include "unit/cost_sums.h"

namespace kvarto {
namespace {

using samples::TemporaryFolder;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// Llama-2-7B.
constexpr const char* kLlama =
    R"({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096,
        "vocab_size": 32000})";

Error error_of(const Result<ModelSpec>& model) {
  EXPECT_FALSE(model.has_value());
  return model ? Error{} : model.error();
}

TEST(OpenModel, ReadsAConfigFileAndNamesTheModelAfterItsFolder) {
  const TemporaryFolder folder;
  const std::string path = folder.write("llama-2-7b/config.json", kLlama);
  const auto model = open_model(path);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model->name, "llama-2-7b");
  EXPECT_EQ(model->model_type, "llama");
  EXPECT_EQ(model->num_layers, 32u);
  EXPECT_EQ(model->max_context, 4096u);
  EXPECT_EQ(model->hidden_size, 4096u);
  EXPECT_EQ(model->vocab_size, 32000u);
  EXPECT_FALSE(model->is_unknown_type);
  EXPECT_TRUE(model->notes.empty());
}

TEST(OpenModel, ReadsAFolderWithAndWithoutATrailingSlash) {
  const TemporaryFolder folder;
  (void)folder.write("llama-2-7b/config.json", kLlama);
  for (const char* name : {"llama-2-7b", "llama-2-7b/", "./llama-2-7b/../llama-2-7b"}) {
    const auto model = open_model(folder.path(name));
    ASSERT_TRUE(model.has_value()) << name << ": " << model.error().message;
    EXPECT_EQ(model->name, "llama-2-7b") << name;
  }
}

TEST(OpenModel, NamesAnotherFileAfterItself) {
  const TemporaryFolder folder;
  const auto model = open_model(folder.write("my-model.json", kLlama));
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model->name, "my-model");
}

TEST(OpenModel, RefusesAnEmptyPath) {
  EXPECT_EQ(error_of(open_model("")).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of(open_model(std::string_view("a\0b", 3))).code, ErrorCode::kInvalidArgument);
}

TEST(OpenModel, SaysThatAFileDoesNotExist) {
  const TemporaryFolder folder;
  const std::string path = folder.path("absent/config.json");
  const Error error = error_of(open_model(path));
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, HasSubstr(path));
}

TEST(OpenModel, SaysThatAFolderHoldsNoConfig) {
  const TemporaryFolder folder;
  const Error error = error_of(open_model(folder.path()));
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, HasSubstr("config.json"));
}

TEST(OpenModel, RefusesAFolderInPlaceOfTheFile) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("m/config.json"));
  const Error error = error_of(open_model(folder.path("m")));
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, AllOf(HasSubstr("m/config.json"), HasSubstr("a folder")));
}

TEST(OpenModel, RefusesAPipeWithoutWaitingForItsWriter) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("config.json").c_str(), 0600), 0);
  for (const char* name : {"", "config.json"}) {
    const Error error = error_of(open_model(folder.path(name)));
    EXPECT_EQ(error.code, ErrorCode::kIo) << name;
    EXPECT_THAT(error.message, HasSubstr("a pipe"));
  }
}

TEST(OpenModel, RefusesADevice) {
  EXPECT_EQ(error_of(open_model("/dev/null")).code, ErrorCode::kIo);
}

TEST(OpenModel, RefusesAnUnreadableFile) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const TemporaryFolder folder;
  const std::string path = folder.write("config.json", kLlama);
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  EXPECT_EQ(error_of(open_model(path)).code, ErrorCode::kIo);
}

TEST(OpenModel, RefusesAnEmptyFile) {
  const TemporaryFolder folder;
  const Error error = error_of(open_model(folder.write("config.json", "")));
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message, HasSubstr("config.json: after byte 0"));
}

TEST(OpenModel, RefusesAFileBeyondTheSizeOfAnyConfigBeforeReadingIt) {
  const TemporaryFolder folder;
  const std::string path = folder.write("config.json", "");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);  // sparse: takes no disk
  const Error error = error_of(open_model(path));
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message, HasSubstr("1099511627776 bytes"));
}

TEST(ReadConfigJson, RefusesADocumentThatIsNoMap) {
  for (const char* text : {"[]", "1", "null", "\"config\""}) {
    const Error error = error_of(read_config_json(text, "config.json"));
    EXPECT_EQ(error.code, ErrorCode::kCorruptData) << text;
    EXPECT_THAT(error.message, HasSubstr("expected a map")) << text;
  }
}

TEST(ReadConfigJson, FindsTheLanguageModelUnderEveryNameItHas) {
  const std::string llama = kLlama;
  const std::string cases[] = {
      fmt::format(R"({{"model_type": "llava", "text_config": {}}})", llama),
      fmt::format(R"({{"model_type": "internvl_chat", "llm_config": {}}})", llama),
      fmt::format(R"({{"model_type": "deepseek_vl_v2", "language_config": {}}})", llama),
      fmt::format(R"({{"model_type": "omni", "thinker_config": {{"text_config": {}}},
                       "talker_config": {{"num_hidden_layers": 3}}}})",
                  llama),
      fmt::format(R"({{"num_hidden_layers": 2, "vision_config": {{"num_hidden_layers": 3}},
                       "text_config": {}}})",
                  llama)};
  for (const std::string& text : cases) {
    const auto model = read_config_json(text, "nested");
    ASSERT_TRUE(model.has_value()) << text << ": " << model.error().message;
    EXPECT_EQ(model->model_type, "llama") << text;
    EXPECT_EQ(model->num_layers, 32u) << text;
    EXPECT_FALSE(model->is_unknown_type) << text;
  }
}

TEST(ReadConfigJson, NamesANestedKeyInFull) {
  const Error error = error_of(read_config_json(
      R"({"model_type": "llava", "text_config": {"model_type": "llama", "head_dim": "x"}})",
      "config.json"));
  EXPECT_THAT(error.message, HasSubstr("config.json: text_config.head_dim: found \"x\""));
}

TEST(ReadConfigJson, GivesANestedMapWithoutTypeTheTypeOfItsFile) {
  const auto model = read_config_json(
      R"({"model_type": "gemma3", "text_config": {"num_hidden_layers": 34, "hidden_size": 2560,
          "sliding_window": 1024}})",
      "gemma-3-4b-it");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_FALSE(model->is_unknown_type);
  EXPECT_EQ(slope_of(typed(*model)), 20480);  // 5 x 4 heads x 256 x 2 x 2 B
}

TEST(UnknownType, IsPlannedFromItsKeysWithAVisibleNote) {
  const auto model = read_config_json(
      R"({"model_type": "foo9", "num_hidden_layers": 10, "num_attention_heads": 16,
          "num_key_value_heads": 4, "head_dim": 64})",
      "foo");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_TRUE(model->is_unknown_type);
  EXPECT_THAT(model->notes,
              Contains(AllOf(HasSubstr("\"foo9\" is unknown"), HasSubstr("plain attention"),
                             HasSubstr("num_key_value_heads"))));
  EXPECT_EQ(slope_of(typed(*model)), 10 * 4 * 64 * 2 * 2);
}

TEST(UnknownType, IsReadWithoutAnyModelType) {
  const auto model = read_config_json(
      R"({"n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 128})", "nanogpt");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_TRUE(model->is_unknown_type);
  EXPECT_THAT(model->notes, Contains(HasSubstr("model_type is absent")));
  EXPECT_THAT(model->notes, Contains(HasSubstr("num_key_value_heads: absent, took 4")));
  EXPECT_EQ(slope_of(typed(*model)), 2 * 64 * 2 * 2);
  EXPECT_EQ(model->max_context, 128u);
}

TEST(UnknownType, WithALatentRankIsReadAsLatentAttention) {
  const auto model = read_config_json(
      R"({"model_type": "foo9", "num_hidden_layers": 61, "num_attention_heads": 128,
          "kv_lora_rank": 512, "qk_rope_head_dim": 64})",
      "foo");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_TRUE(model->is_unknown_type);
  EXPECT_THAT(model->notes, Contains(HasSubstr("latent attention")));
  EXPECT_EQ(slope_of(typed(*model)), 70272);  // DeepSeek-V3's: 61 x 576 x 2 B
}

TEST(UnknownType, TakesAWindowWithoutARuleForEveryLayerAndSaysSo) {
  const auto model = read_config_json(
      R"({"model_type": "foo9", "num_hidden_layers": 10, "num_attention_heads": 4, "head_dim": 64,
          "sliding_window": 100})",
      "foo");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_THAT(model->notes, Contains(HasSubstr("sliding_window: took it for every layer")));
  EXPECT_EQ(slope_of(typed(*model)), 0);
  EXPECT_EQ(fixed_of(typed(*model)), 10u * 4 * 64 * 2 * 2 * 100);
}

TEST(UnknownType, IsRefusedWhereItsKeysSpeakOfAnotherArchitecture) {
  for (const char* key : {"linear_attn_config", "hybrid_override_pattern", "compress_ratios"}) {
    const Error error = error_of(read_config_json(
        fmt::format(R"({{"model_type": "foo9", "num_hidden_layers": 2, "num_attention_heads": 4,
                         "head_dim": 64, "{}": [1]}})",
                    key),
        "config.json"));
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, AllOf(HasSubstr("foo9"), HasSubstr(key)));
  }
}

struct Missing {
  const char* key;
  const char* text;
};

TEST(UnknownType, NamesTheKeyThatIsMissing) {
  const Missing cases[] = {
      {"num_hidden_layers", R"({"num_attention_heads": 4, "head_dim": 64})"},
      {"num_attention_heads", R"({"num_hidden_layers": 4, "head_dim": 64})"},
      {"head_dim", R"({"num_hidden_layers": 4, "num_attention_heads": 4})"},
      {"qk_rope_head_dim",
       R"({"num_hidden_layers": 4, "num_attention_heads": 4, "kv_lora_rank": 512})"}};
  for (const Missing& missing : cases) {
    const Error error = error_of(read_config_json(missing.text, "config.json"));
    EXPECT_EQ(error.code, ErrorCode::kCorruptData);
    EXPECT_THAT(error.message, HasSubstr(fmt::format("config.json: {}: missing", missing.key)));
  }
}

TEST(SharedConfigs, AreAllPlannedWithoutAnUnknownType) {
  const auto folder = samples::shared_folder();
  if (!folder) GTEST_SKIP() << "no shared collection beside the repository";
  std::size_t num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(*folder / "configs")) {
    if (entry.path().filename() != "config.json") continue;
    ++num_files;
    const auto model = open_model(entry.path().string());
    ASSERT_TRUE(model.has_value()) << model.error().message;
    EXPECT_FALSE(model->is_unknown_type) << entry.path();
    EXPECT_THAT(model->notes, Not(Contains(HasSubstr("unknown")))) << entry.path();
    EXPECT_GT(slope_of(typed(*model)) + static_cast<double>(fixed_of(typed(*model))), 0.0);
  }
  EXPECT_GE(num_files, 62u);
}

}  // namespace
}  // namespace kvarto
