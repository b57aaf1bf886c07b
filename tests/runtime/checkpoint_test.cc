// What Checkpoint::open refuses, and that the message names file and tensor.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvarto/runtime.h"
#include "runtime/tiny_model.h"
#include "samples/folders.h"

namespace kvarto {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const samples::TinyModel& tiny() {
  static const samples::TinyModels models =
      samples::tiny_models(std::string(KVARTO_SOURCE_DIR) + "/tests/golden");
  return models.models.front();
}

class CheckpointOf : public testing::Test {
 protected:
  // The error of opening the folder after `tensors_` and `config_` were written to it.
  Error open_error() {
    folder_.write("config.json", config_.dump());
    folder_.write("model.safetensors", samples::safetensors_of(tensors_));
    auto checkpoint = Checkpoint::open(folder_.path());
    if (checkpoint.has_value()) return {ErrorCode::kInvalidArgument, "opened"};
    return checkpoint.error();
  }

  samples::TemporaryFolder folder_;
  samples::TinyTensors tensors_ = tiny().tensors;
  nlohmann::json config_ = tiny().config;
};

constexpr const char* kGate = "model.layers.1.mlp.gate_proj.weight";

TEST_F(CheckpointOf, NamesWhatItHolds) {
  folder_.write("config.json", config_.dump());
  const std::string file = folder_.write("model.safetensors", samples::safetensors_of(tensors_));
  for (const std::string& path :
       {folder_.path(), folder_.path("config.json"), folder_.path("model.safetensors")}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->family(), "llama");
    EXPECT_EQ(checkpoint->vocab_size(), 61u);
    EXPECT_EQ(checkpoint->files(), std::vector<std::string>{file});
    std::uint64_t bytes = 0;
    for (const auto& [name, tensor] : tensors_) bytes += tensor.values.size() * sizeof(float);
    EXPECT_EQ(checkpoint->weight_bytes(), bytes);
  }
}

TEST_F(CheckpointOf, MissingTensorIsNamed) {
  tensors_.erase(kGate);
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("model.safetensors"), HasSubstr(kGate), HasSubstr("missing")));
}

TEST_F(CheckpointOf, MissingNormIsNamed) {
  tensors_.erase("model.norm.weight");
  EXPECT_THAT(open_error().message, HasSubstr("\"model.norm.weight\": missing"));
}

TEST_F(CheckpointOf, MissingHeadIsNamedUnlessTied) {
  tensors_.erase("lm_head.weight");
  EXPECT_THAT(open_error().message, HasSubstr("\"lm_head.weight\": missing"));
  config_["tie_word_embeddings"] = true;
  EXPECT_EQ(open_error().message, "opened");
}

TEST_F(CheckpointOf, MisshapenTensorIsNamedWithBothShapes) {
  tensors_[kGate].shape = {48, 80};
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message, AllOf(HasSubstr(kGate), HasSubstr("[48, 80]"), HasSubstr("[80, 48]")));
}

TEST_F(CheckpointOf, MisshapenEmbeddingIsRefused) {
  tensors_["model.embed_tokens.weight"].shape = {48, 61};
  EXPECT_THAT(open_error().message, AllOf(HasSubstr("embed_tokens"), HasSubstr("[61, 48]")));
}

TEST_F(CheckpointOf, MisshapenNormIsRefused) {
  tensors_["model.norm.weight"].shape = {1, 48};
  EXPECT_THAT(open_error().message, AllOf(HasSubstr("model.norm.weight"), HasSubstr("[48]")));
}

TEST_F(CheckpointOf, TensorThatThePassWouldNotUseIsRefused) {
  tensors_["model.layers.0.self_attn.q_proj.bias"] = {{48}, std::vector<float>(48)};
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("model.layers.0.self_attn.q_proj.bias"));
}

TEST_F(CheckpointOf, FileThatIsCutOffIsRefusedWithItsName) {
  folder_.write("config.json", config_.dump());
  const std::string whole = samples::safetensors_of(tensors_);
  for (const std::size_t size : {whole.size() - 1, whole.size() / 2, std::size_t{100}}) {
    const std::string file = folder_.write("model.safetensors", whole.substr(0, size));
    const auto checkpoint = Checkpoint::open(folder_.path());
    ASSERT_FALSE(checkpoint.has_value());
    EXPECT_EQ(checkpoint.error().code, ErrorCode::kCorruptData);
    EXPECT_THAT(checkpoint.error().message, HasSubstr(file));
  }
}

TEST_F(CheckpointOf, FamilyThatDoesNotRunIsRefusedWithThoseThatDo) {
  config_["model_type"] = "olmo";
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, AllOf(HasSubstr("\"olmo\""), HasSubstr("llama"), HasSubstr("qwen3")));
}

TEST_F(CheckpointOf, AnotherActivationIsRefused) {
  config_["hidden_act"] = "relu";
  EXPECT_THAT(open_error().message, AllOf(HasSubstr("hidden_act"), HasSubstr("relu")));
}

TEST_F(CheckpointOf, RopeScalingsThatDoNotRunAreRefused) {
  config_["rope_scaling"] = {{"rope_type", "longrope"}, {"factor", 2.0}};
  EXPECT_THAT(open_error().message, AllOf(HasSubstr("rope_scaling"), HasSubstr("longrope")));
  config_["rope_scaling"] = {{"rope_type", "linear"}};
  EXPECT_THAT(open_error().message, HasSubstr("factor: missing"));
  config_["rope_scaling"] = {{"rope_type", "linear"}, {"factor", -1}};
  EXPECT_THAT(open_error().message, HasSubstr("factor: found -1"));
}

TEST(Checkpoint, NameOfTheCatalogueHasNoWeights) {
  const auto checkpoint = Checkpoint::open("llama-3.1-8b");
  ASSERT_FALSE(checkpoint.has_value());
  EXPECT_EQ(checkpoint.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(checkpoint.error().message, HasSubstr("no weights"));
}

// --- GGUF ----------------------------------------------------------------------------------------

// A Llama of one layer with tensors of `type`, 32 wide.
std::string gguf_with(std::uint32_t type, std::uint64_t block_bytes, bool is_cut) {
  std::vector<samples::GgufTensorBytes> tensors;
  const auto add = [&](const std::string& name, std::uint64_t rows, std::uint32_t stored) {
    const std::uint64_t bytes = stored == 0 ? rows * 32 * 4 : rows * block_bytes;
    tensors.push_back({name, {rows, 32}, stored, std::string(bytes, '\0')});
  };
  const auto add_norm = [&](const std::string& name) {
    tensors.push_back({name, {32}, 0, samples::float_bytes(std::vector<float>(32, 1.0f))});
  };
  add("token_embd.weight", 8, 0);
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    add("blk.0." + std::string(name) + ".weight", 32, type);
  }
  for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
    add("blk.0." + std::string(name) + ".weight", 32, type);
  }
  add_norm("blk.0.attn_norm.weight");
  add_norm("blk.0.ffn_norm.weight");
  add_norm("output_norm.weight");
  std::string file = samples::gguf_of(tensors, 8, [](samples::GgufWriter& keys) {
    keys.string("general.architecture", "llama");
    for (const auto& [key, value] :
         std::initializer_list<std::pair<const char*, std::uint32_t>>{{"block_count", 1},
                                                                      {"embedding_length", 32},
                                                                      {"feed_forward_length", 32},
                                                                      {"attention.head_count", 2},
                                                                      {"vocab_size", 8},
                                                                      {"context_length", 64}}) {
      keys.u32("llama." + std::string(key), value);
    }
    keys.key("llama.attention.layer_norm_rms_epsilon", 6).number<float>(1e-5f);
  });
  if (is_cut) file.resize(file.size() - 64);
  return file;
}

TEST(CheckpointOfGguf, EveryTypeOfWeightsRuns) {
  struct Type {
    std::uint32_t number;
    std::uint64_t block_bytes;  // of 32 elements
  };
  for (const Type type :
       {Type{0, 128}, Type{1, 64}, Type{30, 64}, Type{8, 34}, Type{6, 22}, Type{2, 18}}) {
    const samples::TemporaryFolder folder;
    const std::string path =
        folder.write("m.gguf", gguf_with(type.number, type.block_bytes, false));
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    auto session = Session::create(*checkpoint, {.cache_types = {"f32", "f32", ""}});
    ASSERT_TRUE(session.has_value()) << session.error().message;
    const std::uint32_t tokens[] = {1, 2, 3};
    EXPECT_TRUE(session->feed(tokens).has_value());
  }
}

TEST(CheckpointOfGguf, TypeWithoutKernelsIsRefusedWithTheTensor) {
  const samples::TemporaryFolder folder;
  const std::string path = folder.write("m.gguf", gguf_with(7, 24, false));  // Q5_1
  const auto checkpoint = Checkpoint::open(path);
  ASSERT_FALSE(checkpoint.has_value());
  EXPECT_EQ(checkpoint.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(checkpoint.error().message,
              AllOf(HasSubstr(path), HasSubstr("blk.0.attn_q.weight"), HasSubstr("Q5_1")));
}

TEST(CheckpointOfGguf, FileThatIsCutOffIsRefusedWithFileAndTensor) {
  const samples::TemporaryFolder folder;
  const std::string path = folder.write("m.gguf", gguf_with(8, 34, true));
  const auto checkpoint = Checkpoint::open(path);
  ASSERT_FALSE(checkpoint.has_value());
  EXPECT_EQ(checkpoint.error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(checkpoint.error().message, AllOf(HasSubstr(path), HasSubstr("output_norm.weight")));
}

}  // namespace
}  // namespace kvarto
