// The tokenizers of real models against the tokens that llama.cpp gives for the same texts.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "kvarto/tokenizer.h"
#include "kvarto/vocabulary_file.h"
#include "samples/folders.h"

namespace kvarto {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Texts with a marker line between them.
std::vector<std::string> texts_of(const std::string& content) {
  const std::string marker = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (std::size_t end = 0; end != std::string::npos; at = end + marker.size()) {
    end = content.find(marker, at);
    texts.push_back(content.substr(at, end == std::string::npos ? end : end - at));
  }
  return texts;
}

// One line of numbers a text.
std::vector<std::vector<TokenId>> tokens_of(const std::string& content) {
  std::vector<std::vector<TokenId>> all;
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    all.emplace_back(std::istream_iterator<TokenId>(numbers), std::istream_iterator<TokenId>());
  }
  return all;
}

class TokenizerVectors : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto folder = samples::shared_folder();
    if (!folder) GTEST_SKIP() << "no shared collection of vocabularies beside the repository";
    path_ = *folder / "vocab" / fmt::format("ggml-vocab-{}.gguf", GetParam());
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << path_ << " is absent";
    auto vocabulary = read_vocabulary(path_.string());
    ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
    auto created = Tokenizer::create(std::move(*vocabulary));
    ASSERT_TRUE(created.has_value()) << created.error().message;
    tokenizer_.emplace(std::move(*created));
  }

  std::filesystem::path path_;
  std::optional<Tokenizer> tokenizer_;
};

TEST_P(TokenizerVectors, EveryTextHasTheTokensOfLlamaCpp) {
  const std::vector<std::string> texts = texts_of(read_file(path_.string() + ".inp"));
  const auto expected = tokens_of(read_file(path_.string() + ".out"));
  ASSERT_GE(expected.size(), texts.size() - 1);
  ASSERT_GT(texts.size(), 10u);
  for (std::size_t i = 0; i < texts.size() && i < expected.size(); ++i) {
    const auto tokens = tokenizer_->encode(texts[i], {.adds_ends = false});
    ASSERT_TRUE(tokens.has_value()) << tokens.error().message;
    EXPECT_EQ(*tokens, expected[i]) << "text " << i << ": " << texts[i];
  }
}

TEST_P(TokenizerVectors, DecodingGivesTheTextBack) {
  for (const std::string& text : texts_of(read_file(path_.string() + ".inp"))) {
    const auto tokens = tokenizer_->encode(text, {.adds_ends = false});
    ASSERT_TRUE(tokens.has_value()) << tokens.error().message;
    EXPECT_EQ(tokenizer_->decode(*tokens), text);
  }
}

INSTANTIATE_TEST_SUITE_P(OfModels, TokenizerVectors,
                         ::testing::Values("deepseek-coder", "falcon", "gpt-2", "llama-spm",
                                           "phi-3"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Token ids of stories by the model's own tokenizer, BOS first.
class StoryTokens : public ::testing::TestWithParam<const char*> {};

TEST_P(StoryTokens, AreThoseOfTheGoldenStories) {
  const auto folder = samples::shared_folder();
  if (!folder) GTEST_SKIP() << "no shared collection of models beside the repository";
  const auto models = *folder / "models/stories260K";
  const auto golden = nlohmann::json::parse(read_file(models / "golden_stories260K.json"));
  const auto stories = nlohmann::json::parse(read_file(*folder / "text/tinystories_1000.json"));
  auto vocabulary = read_vocabulary((models / GetParam()).string());
  ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
  const auto tokenizer = Tokenizer::create(std::move(*vocabulary));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  // The SentencePiece model says that runs of spaces are one; GGUF has no such rule.
  const bool collapses = tokenizer->vocabulary().collapses_spaces;
  std::size_t num_compared = 0;
  for (const auto& story : golden["stories"]) {
    const auto text = stories[story["story"].get<std::size_t>()].get<std::string>();
    if (collapses && text.find("  ") != std::string::npos) continue;
    const auto tokens = tokenizer->encode(text);
    ASSERT_TRUE(tokens.has_value()) << tokens.error().message;
    EXPECT_EQ(tokenizer->decode(*tokens), text);
    // The golden ones end with the model's context.
    const auto expected = story["tokens"].get<std::vector<TokenId>>();
    ASSERT_GE(tokens->size(), expected.size());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), tokens->begin())) << text;
    ++num_compared;
  }
  EXPECT_GE(num_compared, golden["stories"].size() - 2);
}

INSTANTIATE_TEST_SUITE_P(OfFiles, StoryTokens,
                         ::testing::Values("stories260Ktok512.gguf", "tok512.model"),
                         [](const auto& param) {
                           return std::string(param.param).ends_with(".model") ? "model" : "gguf";
                         });

}  // namespace
}  // namespace kvarto
