// Readers of vocabularies: tokenizer.json and SentencePiece models against what the libraries that
// wrote them make of the same texts (tests/golden/make_tokenizers.py), GGUF by its keys, and files
// that are wrong.

#include "kvarto/vocabulary_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "formats/gguf_vocabulary.h"
#include "kvarto/tokenizer.h"
#include "samples/folders.h"
#include "samples/gguf_writer.h"

namespace kvarto {
namespace {

using nlohmann::json;
using samples::as_bytes;
using samples::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string message_of(const Result<Vocabulary>& vocabulary) {
  if (!vocabulary.has_value()) return vocabulary.error().message;
  const auto tokenizer = Tokenizer::create(*vocabulary);
  return tokenizer.has_value() ? "accepted" : tokenizer.error().message;
}

std::string from_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = (bits << 6) | static_cast<std::uint32_t>(digit);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>((bits >> num_bits) & 0xFF);
  }
  return bytes;
}

const json& golden() {
  static const json all =
      json::parse(std::ifstream(std::string(KVARTO_SOURCE_DIR) + "/tests/golden/tokenizers.json"));
  return all;
}

class GoldenTokenizers : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (const json& entry : golden()) {
      if (entry["name"] == GetParam()) entry_ = entry;
    }
    Result<Vocabulary> vocabulary =
        entry_.contains("json")
            ? read_tokenizer_json(entry_["json"].dump(), "tokenizer.json")
            : read_sentencepiece_model(as_bytes(from_base64(entry_["model"].get<std::string>())),
                                       "tokenizer.model");
    ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
    auto tokenizer = Tokenizer::create(std::move(*vocabulary));
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    tokenizer_.emplace(std::move(*tokenizer));
  }

  json entry_;
  std::optional<Tokenizer> tokenizer_;
};

TEST_P(GoldenTokenizers, TextsHaveTheTokensOfTheirLibrary) {
  ASSERT_GT(entry_["cases"].size(), 40u);
  for (const json& each : entry_["cases"]) {
    const auto text = each["text"].get<std::string>();
    // The library of tokenizer.json always parses special tokens, SentencePiece never.
    const EncodeOptions options{.adds_ends = false, .parses_control = entry_.contains("json")};
    const auto tokens = tokenizer_->encode(text, options);
    ASSERT_TRUE(tokens.has_value()) << tokens.error().message;
    EXPECT_EQ(*tokens, each["ids"].get<std::vector<TokenId>>()) << json(text).dump();
  }
}

TEST_P(GoldenTokenizers, TokensHaveTheTextOfTheirLibrary) {
  if (!entry_.contains("json")) return;
  for (const json& each : entry_["cases"]) {
    if (each["text"] == "<unk>") continue;  // U+FFFD here, nothing there
    EXPECT_EQ(tokenizer_->decode(each["ids"].get<std::vector<TokenId>>()),
              each["decoded"].get<std::string>())
        << each["text"].dump();
  }
}

INSTANTIATE_TEST_SUITE_P(OfLibraries, GoldenTokenizers,
                         ::testing::Values("llama3", "qwen2", "gpt2-prefix", "llama2", "gemma",
                                           "metaspace", "bytes", "collapsing", "unknown"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// ---- tokenizer.json that is wrong, or not known

json small_json() {
  return json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b"]}})");
}

std::string json_message(const std::function<void(json&)>& change) {
  json root = small_json();
  change(root);
  return message_of(read_tokenizer_json(root.dump(), "t.json"));
}

TEST(TokenizerJson, WhatIsWrongIsNamed) {
  EXPECT_EQ(json_message([](json&) {}), "accepted");
  EXPECT_THAT(json_message([](json& j) { j["model"]["merges"] = {"a x"}; }),
              HasSubstr("t.json: model.merges[0]: found \"x\", expected a token of model.vocab"));
  EXPECT_THAT(json_message([](json& j) { j["model"]["merges"] = {"b a"}; }),
              HasSubstr("model.merges[0]: found \"ba\""));
  EXPECT_THAT(json_message([](json& j) { j["model"]["merges"] = {"ab"}; }),
              HasSubstr("expected two tokens"));
  EXPECT_THAT(json_message([](json& j) {
                j["model"]["merges"] = {{"a", "b", "c"}};
              }),
              HasSubstr("model.merges[0]: expected two tokens"));
  EXPECT_THAT(json_message([](json& j) { j["model"]["vocab"]["z"] = 3; }),
              HasSubstr("model.vocab.z: found the number 3 of another token"));
  EXPECT_THAT(json_message([](json& j) { j["model"]["vocab"]["z"] = -1; }),
              HasSubstr("model.vocab.z: found -1, expected a number below"));
  EXPECT_THAT(json_message([](json& j) { j["model"]["vocab"]["z"] = 4'000'000'000; }),
              HasSubstr("model.vocab.z: found 4000000000"));
  EXPECT_THAT(json_message([](json& j) { j["added_tokens"][0]["id"] = 0; }),
              HasSubstr("added_tokens[0]: found the number 0 of another token"));
  EXPECT_THAT(json_message([](json& j) { j["model"]["unk_token"] = "?"; }),
              HasSubstr("model.unk_token: found ?"));
  EXPECT_THAT(json_message([](json& j) { j.erase("model"); }), HasSubstr("model: expected a map"));
  EXPECT_THAT(message_of(read_tokenizer_json("[1", "t.json")), HasSubstr("t.json"));
}

TEST(TokenizerJson, WhatIsNotKnownIsNamed) {
  EXPECT_THAT(json_message([](json& j) { j["model"]["type"] = "WordPiece"; }),
              HasSubstr("model.type: found WordPiece, expected BPE"));
  EXPECT_THAT(json_message([](json& j) {
                j["normalizer"] = {{"type", "Lowercase"}};
              }),
              HasSubstr("normalizer: found Lowercase, which is not supported"));
  EXPECT_THAT(json_message([](json& j) {
                j["pre_tokenizer"] = {{"type", "Sequence"},
                                      {"pretokenizers", {{{"type", "BertPreTokenizer"}}}}};
              }),
              HasSubstr("pre_tokenizer.pretokenizers[0]: found BertPreTokenizer"));
  EXPECT_THAT(json_message([](json& j) { j["model"]["dropout"] = 0.1; }), HasSubstr("dropout"));
  EXPECT_THAT(json_message([](json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }),
              HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(json_message([](json& j) { j["added_tokens"][0]["single_word"] = true; }),
              HasSubstr("single_word"));
}

TEST(TokenizerJson, ALetterWithoutATokenIsAnErrorWhenTheTextHasIt) {
  auto vocabulary = read_tokenizer_json(small_json().dump(), "t.json");
  ASSERT_TRUE(vocabulary.has_value());
  const auto tokenizer = Tokenizer::create(std::move(*vocabulary));
  EXPECT_THAT(*tokenizer->encode("ab c"), ElementsAre(2, 3));
  EXPECT_THAT(tokenizer->encode("x").error().message,
              HasSubstr("t.json: model.vocab: found no token for byte 0x78"));
}

// ---- settings beside a tokenizer

TEST(VocabularyFile, SettingsBesideATokenizerSayWhatBeginsAndEndsTexts) {
  const samples::TemporaryFolder folder;
  json root = small_json();
  root["added_tokens"].push_back({{"id", 5}, {"content", "</s>"}, {"special", true}});
  root["added_tokens"].push_back({{"id", 6}, {"content", "<end_of_turn>"}, {"special", true}});
  (void)folder.write("tokenizer.json", root.dump());
  (void)folder.write("tokenizer_config.json",
                     R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
                         "add_bos_token": true})");
  (void)folder.write("generation_config.json", R"({"eos_token_id": [3, 5]})");
  (void)folder.write("config.json", "{}");
  (void)folder.write("model.safetensors", "");
  for (const char* name : {"", "tokenizer.json", "config.json", "model.safetensors"}) {
    const auto vocabulary = read_vocabulary(folder.path(name));
    ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
    EXPECT_EQ(vocabulary->bos, 4u);
    EXPECT_EQ(vocabulary->eos, 5u);
    EXPECT_TRUE(vocabulary->adds_bos);
    EXPECT_THAT(vocabulary->ends, ::testing::UnorderedElementsAre(3, 5, 6));
  }
}

TEST(VocabularyFile, AFolderWithoutATokenizerIsAnErrorThatSaysWhatIsMissing) {
  const samples::TemporaryFolder folder;
  const auto vocabulary = read_vocabulary(folder.path());
  ASSERT_FALSE(vocabulary.has_value());
  EXPECT_EQ(vocabulary.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(vocabulary.error().message,
              HasSubstr("found neither tokenizer.json nor tokenizer.model"));
}

// ---- GGUF

Result<Vocabulary> from_gguf(const GgufWriter& writer) {
  const auto header = parse_gguf(as_bytes(writer.str()), "m.gguf");
  if (!header.has_value()) return tl::unexpected<Error>(header.error());
  return read_gguf_vocabulary(*header, "m.gguf");
}

void scores(GgufWriter& writer, const std::vector<float>& values) {
  writer.key("tokenizer.ggml.scores", 9).number<std::uint32_t>(6);
  writer.number<std::uint64_t>(values.size());
  for (const float value : values) writer.number<float>(value);
}

void kinds(GgufWriter& writer, const std::vector<std::int32_t>& values) {
  writer.key("tokenizer.ggml.token_type", 9).number<std::uint32_t>(5);
  writer.number<std::uint64_t>(values.size());
  for (const std::int32_t value : values) writer.number<std::int32_t>(value);
}

TEST(GgufVocabulary, OfTheKindLlamaHasScoresAndTheNumbersOfLlama2) {
  GgufWriter writer(0, 4);
  writer.string("tokenizer.ggml.model", "llama");
  writer.strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0x41>", "\u2581"});
  scores(writer, {0, 0, 0, 0, -1});
  kinds(writer, {2, 3, 3, 6, 1});
  const auto vocabulary = from_gguf(writer);
  ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->bos, 1u);
  EXPECT_EQ(vocabulary->eos, 2u);
  EXPECT_TRUE(vocabulary->adds_bos);
  const auto tokenizer = Tokenizer::create(*vocabulary);
  EXPECT_THAT(*tokenizer->encode("A"), ElementsAre(1, 4, 3));
}

TEST(GgufVocabulary, SaysWhatItAddsAndWhichTokensEndATurn) {
  GgufWriter writer(0, 8);
  writer.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "llama-bpe");
  writer.strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|begin|>", "<|eot_id|>", "c"});
  writer.strings("tokenizer.ggml.merges", {"a b"});
  kinds(writer, {1, 1, 1, 3, 3, 1});
  writer.u32("tokenizer.ggml.bos_token_id", 3).u32("tokenizer.ggml.eos_token_id", 5);
  writer.u32("tokenizer.ggml.eot_token_id", 0xFFFF'FFFF);
  const auto vocabulary = from_gguf(writer);
  ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
  EXPECT_TRUE(vocabulary->adds_bos);  // as all of Llama 3's kind do
  EXPECT_TRUE(vocabulary->takes_whole_words);
  EXPECT_THAT(vocabulary->ends, ::testing::UnorderedElementsAre(4, 5));
  EXPECT_THAT(*Tokenizer::create(*vocabulary)->encode("ab"), ElementsAre(3, 2));
}

TEST(GgufVocabulary, WhatIsWrongIsNamed) {
  const auto message = [](const std::function<void(GgufWriter&)>& rest, std::uint64_t num_keys) {
    GgufWriter writer(0, num_keys);
    rest(writer);
    return message_of(from_gguf(writer));
  };
  EXPECT_THAT(message([](GgufWriter&) {}, 0), HasSubstr("found no vocabulary"));
  EXPECT_THAT(message([](GgufWriter& w) { w.string("tokenizer.ggml.model", "t5"); }, 1),
              HasSubstr("tokenizer.ggml.model: found t5, expected llama or gpt2"));
  const auto gpt2 = [](GgufWriter& w) {
    w.string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", {"a", "b"});
  };
  EXPECT_THAT(message(gpt2, 2), HasSubstr("tokenizer.ggml.merges: expected a list of strings"));
  EXPECT_THAT(message(
                  [&](GgufWriter& w) {
                    gpt2(w);
                    w.strings("tokenizer.ggml.merges", {"a b"});
                  },
                  3),
              HasSubstr("m.gguf: tokenizer.ggml.merges[0]: found \"ab\", expected a token"));
  EXPECT_THAT(message(
                  [&](GgufWriter& w) {
                    gpt2(w);
                    w.string("tokenizer.ggml.pre", "novel");
                  },
                  3),
              HasSubstr("tokenizer.ggml.pre: found novel"));
  EXPECT_THAT(message(
                  [&](GgufWriter& w) {
                    gpt2(w);
                    kinds(w, {1, 9});
                  },
                  3),
              HasSubstr("tokenizer.ggml.token_type: entry 1: found 9, expected 1 to 6"));
  EXPECT_THAT(message(
                  [&](GgufWriter& w) {
                    gpt2(w);
                    w.strings("tokenizer.ggml.merges", {}).u32("tokenizer.ggml.bos_token_id", 2);
                  },
                  4),
              HasSubstr("tokenizer.ggml.bos_token_id: found 2, expected a number below 2"));
  EXPECT_THAT(message(
                  [](GgufWriter& w) {
                    w.string("tokenizer.ggml.model", "llama");
                    w.strings("tokenizer.ggml.tokens", {"a", "b"});
                    scores(w, {0});
                  },
                  3),
              HasSubstr("tokenizer.ggml.scores: found 1 entries, expected 2"));
}

// ---- SentencePiece models that are wrong

std::string field(unsigned number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) +
         bytes;
}
std::string number_field(unsigned number, unsigned value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}

TEST(SentencePieceModel, WhatIsWrongIsNamed) {
  const auto message = [](const std::string& bytes) {
    return message_of(read_sentencepiece_model(as_bytes(bytes), "t.model"));
  };
  const std::string piece = field(1, field(1, "a"));
  const std::string bpe = field(2, number_field(3, 2));
  EXPECT_EQ(message(piece + bpe), "accepted");
  EXPECT_THAT(message(""), HasSubstr("t.model: pieces: found none"));
  EXPECT_THAT(message(piece), HasSubstr("model_type: found another kind than BPE"));
  EXPECT_THAT(message(bpe + field(1, "")), HasSubstr("pieces[0]: piece: found an empty one"));
  EXPECT_THAT(message(bpe + field(1, field(1, "a") + number_field(3, 7))),
              HasSubstr("pieces[0]: type: found 7, expected 1 to 6"));
  EXPECT_THAT(message(piece + bpe +
                      "\x0a\x7f"
                      "ab"),
              HasSubstr("found no protobuf field"));
  EXPECT_THAT(message(piece + bpe + std::string(12, '\xff')), HasSubstr("found no protobuf field"));
  EXPECT_THAT(message(piece + bpe + field(3, field(2, "map"))),
              HasSubstr("precompiled_charsmap: found a table"));
}

}  // namespace
}  // namespace kvarto
