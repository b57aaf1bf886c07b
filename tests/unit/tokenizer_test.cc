#include "kvarto/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>

#include "formats/byte_level_kinds.h"
#include "samples/vocabularies.h"
#include "text/splitter.h"

namespace kvarto {
namespace {

using samples::add_token;
using samples::byte_token;
using samples::byte_vocabulary;
using samples::kFirstPiece;
using samples::scored_vocabulary;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tokenizer created(Vocabulary vocabulary) {
  auto tokenizer = Tokenizer::create(std::move(vocabulary));
  if (!tokenizer.has_value()) throw std::runtime_error(tokenizer.error().message);
  return std::move(*tokenizer);
}

std::string error_of(Vocabulary vocabulary) {
  const auto tokenizer = Tokenizer::create(std::move(vocabulary));
  return tokenizer.has_value() ? "accepted" : tokenizer.error().message;
}

std::vector<TokenId> encoded(const Tokenizer& tokenizer, std::string_view text,
                             const EncodeOptions& options = {.adds_ends = false}) {
  const auto tokens = tokenizer.encode(text, options);
  if (!tokens.has_value()) throw std::runtime_error(tokens.error().message);
  return *tokens;
}

// Pieces: 259 "▁", 260 "a", 261 "b", 262 "c", 263 "bc", 264 "ab", 265 "▁a".
Vocabulary small() { return scored_vocabulary({"\u2581", "a", "b", "c", "bc", "ab", "\u2581a"}); }

TEST(ScoredTokenizer, TheBestScoreIsJoinedFirst) {
  const Tokenizer tokenizer = created(small());
  // "▁abc": bc (-5) goes before ab (-6), and then ▁a (-7).
  EXPECT_THAT(encoded(tokenizer, "abc"), ElementsAre(265, 263));
  EXPECT_THAT(encoded(tokenizer, "bab"), ElementsAre(259, 261, 264));
}

TEST(ScoredTokenizer, OfEqualScoresTheLeftmostIsJoinedFirst) {
  Vocabulary vocabulary = scored_vocabulary({"\u2581", "a", "aa"});
  EXPECT_THAT(encoded(created(vocabulary), "aaa"),
              ElementsAre(kFirstPiece, kFirstPiece + 2, kFirstPiece + 1));
}

TEST(ScoredTokenizer, WhatHasNoTokenIsSpelledInBytes) {
  const Tokenizer tokenizer = created(small());
  EXPECT_THAT(encoded(tokenizer, "\u00e9a"),
              ElementsAre(259, byte_token(0xC3), byte_token(0xA9), 260));
  EXPECT_EQ(tokenizer.decode(encoded(tokenizer, "\u00e9a")), "\u00e9a");
}

TEST(ScoredTokenizer, BosComesFirstWhereTheVocabularySaysSo) {
  Vocabulary vocabulary = small();
  EXPECT_THAT(encoded(created(vocabulary), "a", {}), ElementsAre(1, 265));
  vocabulary.adds_eos = true;
  EXPECT_THAT(encoded(created(vocabulary), "a", {}), ElementsAre(1, 265, 2));
  vocabulary.adds_bos = false;
  EXPECT_THAT(encoded(created(vocabulary), "", {}), ElementsAre(2));
}

TEST(ScoredTokenizer, ControlTokensAreTextUnlessAskedFor) {
  const Tokenizer tokenizer = created(scored_vocabulary({"\u2581", "<", "s", ">", "<s"}));
  EXPECT_THAT(encoded(tokenizer, "<s>"), ElementsAre(259, 263, 262));
  EXPECT_THAT(encoded(tokenizer, "<s>s<s>", {.adds_ends = false, .parses_control = true}),
              ElementsAre(1, 259, 261, 1));
}

TEST(ScoredTokenizer, APrefixAtTheStartAloneIsNotPutBehindSpecialTokens) {
  Vocabulary vocabulary = small();
  vocabulary.prefix.place = TextPrefix::Place::kStart;
  const EncodeOptions parsing{.adds_ends = false, .parses_control = true};
  EXPECT_THAT(encoded(created(vocabulary), "a<s>a", parsing), ElementsAre(265, 1, 260));
  vocabulary.prefix.place = TextPrefix::Place::kNever;
  EXPECT_THAT(encoded(created(vocabulary), "a", parsing), ElementsAre(260));
}

TEST(ScoredTokenizer, UserDefinedTokensAreAlwaysFoundTheLongestFirst) {
  Vocabulary vocabulary = small();
  add_token(vocabulary, "aa", 0, TokenKind::kUserDefined);    // 266
  add_token(vocabulary, "aaaa", 0, TokenKind::kUserDefined);  // 267
  vocabulary.prefix.place = TextPrefix::Place::kNever;
  EXPECT_THAT(encoded(created(vocabulary), "aaaaaaab"), ElementsAre(267, 266, 264));
}

TEST(ScoredTokenizer, SpacesAroundATokenThatTrimsBelongToIt) {
  Vocabulary vocabulary = small();
  vocabulary.trims = {{1, true, true}};
  const EncodeOptions parsing{.adds_ends = false, .parses_control = true};
  EXPECT_THAT(encoded(created(vocabulary), "a \n<s>  b", parsing), ElementsAre(265, 1, 259, 261));
}

TEST(ScoredTokenizer, RunsOfSpacesAreOneWhereTheVocabularySaysSo) {
  Vocabulary vocabulary = small();
  vocabulary.collapses_spaces = true;
  const Tokenizer tokenizer = created(vocabulary);
  EXPECT_EQ(encoded(tokenizer, "  a   b  "), encoded(tokenizer, "a b"));
  EXPECT_THAT(encoded(tokenizer, "   "), ElementsAre());
}

TEST(ScoredTokenizer, AByteWithoutATokenIsAnErrorThatNamesIt) {
  Vocabulary vocabulary = small();
  vocabulary.kinds[byte_token(0xC3)] = TokenKind::kNormal;
  const auto tokens = created(vocabulary).encode("\u00e9");
  ASSERT_FALSE(tokens.has_value());
  EXPECT_EQ(tokens.error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(tokens.error().message,
              HasSubstr("small.gguf: tokens: found no token for byte 0xC3"));
}

TEST(ScoredTokenizer, WithoutBytesTheUnknownTokenStandsForAllOfIt) {
  Vocabulary vocabulary = small();
  vocabulary.has_byte_fallback = false;
  EXPECT_THAT(encoded(created(vocabulary), "xya"), ElementsAre(259, 0, 0, 260));
  vocabulary.fuses_unknown = true;
  EXPECT_THAT(encoded(created(vocabulary), "xya"), ElementsAre(259, 0, 260));
}

TEST(ByteTokenizer, MergesAreMadeInTheirOrderWithinWords) {
  Vocabulary vocabulary = byte_vocabulary({{"b", "c"}, {"a", "b"}, {"a", "bc"}});  // 256 257 258
  EXPECT_THAT(encoded(created(vocabulary), "abc"), ElementsAre(258));
  EXPECT_THAT(encoded(created(vocabulary), "abab"), ElementsAre(257, 257));
  vocabulary.splits = {{.pattern = "b", .is_literal = true}};
  EXPECT_THAT(encoded(created(vocabulary), "abc"), ElementsAre('a', 'b', 'c'));
}

TEST(ByteTokenizer, AWordThatIsATokenIsTakenWholeWhereTheVocabularySaysSo) {
  Vocabulary vocabulary = byte_vocabulary({{"a", "b"}});
  add_token(vocabulary, "abab");  // 257: no merge makes it
  vocabulary.scores.clear();
  EXPECT_THAT(encoded(created(vocabulary), "abab"), ElementsAre(256, 256));
  vocabulary.takes_whole_words = true;
  EXPECT_THAT(encoded(created(vocabulary), "abab"), ElementsAre(257));
}

TEST(ByteTokenizer, EveryByteComesBack) {
  const Tokenizer tokenizer = created(byte_vocabulary({{"a", "b"}}));
  const std::string text = "\u0001 \u00ad\u00e9\u4e2d\U0001F600\n\tab";
  EXPECT_EQ(tokenizer.decode(encoded(tokenizer, text)), text);
}

TEST(Splitting, FollowsTheBehaviorOfEveryStep) {
  const auto pieces = [](SplitStep::Behavior behavior, bool is_inverted) {
    Vocabulary vocabulary = byte_vocabulary({{"-", "a"}, {"a", "-"}, {"-", "-"}});  // 256 257 258
    vocabulary.splits = {{"-", true, is_inverted, behavior}};
    return encoded(created(vocabulary), "-a--a");
  };
  using enum SplitStep::Behavior;
  EXPECT_THAT(pieces(kIsolated, false), ElementsAre('-', 'a', '-', '-', 'a'));
  EXPECT_THAT(pieces(kRemoved, false), ElementsAre('a', 'a'));
  EXPECT_THAT(pieces(kRemoved, true), ElementsAre('-', '-', '-'));
  EXPECT_THAT(pieces(kContiguous, false), ElementsAre('-', 'a', 258, 'a'));
  // "-" "a-" "-" "a", and "-a" "-" "-a".
  EXPECT_THAT(pieces(kMergedWithPrevious, false), ElementsAre('-', 257, '-', 'a'));
  EXPECT_THAT(pieces(kMergedWithNext, false), ElementsAre(256, '-', 256));
}

TEST(Normalising, ComposesLettersAndReplacesText) {
  Vocabulary vocabulary = byte_vocabulary({});
  vocabulary.steps = {{TextStep::Kind::kNfc, "", ""},
                      {TextStep::Kind::kReplace, "x", "yy"},
                      {TextStep::Kind::kPrepend, "", ">"}};
  EXPECT_THAT(encoded(created(vocabulary), "e\u0301x"), ElementsAre('>', 0xC3, 0xA9, 'y', 'y'));
}

TEST(Decoding, BytesOfACharacterAreHeldBackUntilItIsComplete) {
  const Tokenizer tokenizer = created(byte_vocabulary({}));
  TokenDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.add(0xF0), "");
  EXPECT_EQ(decoder.add(0x9F), "");
  EXPECT_EQ(decoder.add(0x98), "");
  EXPECT_EQ(decoder.add(0x80), "\U0001F600");
  EXPECT_EQ(decoder.add(0xC3), "");
  EXPECT_EQ(decoder.add('a'), "\uFFFDa");
  EXPECT_EQ(decoder.add(0xE2), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
  // No character begins with 0xFF, none goes on like this, and no surrogate is one.
  EXPECT_EQ(decoder.add(0xFF), "\uFFFD");
  EXPECT_EQ(decoder.add(0xED), "");
  EXPECT_EQ(decoder.add(0xA0), "\uFFFD\uFFFD");
}

TEST(Decoding, TheSpaceOfTheTokenizerIsDroppedAtTheStartAlone) {
  const Tokenizer tokenizer = created(small());
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{1, 265, 265, 2}), "a a");
  TokenDecoder decoder(tokenizer, TokenDecoder::Place::kMidText);
  EXPECT_EQ(decoder.add(265), " a");
}

TEST(Encoding, TextThatIsNotUtf8IsAnErrorThatNamesTheByte) {
  const auto tokens = created(small()).encode("ab\xFFz");
  ASSERT_FALSE(tokens.has_value());
  EXPECT_EQ(tokens.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(tokens.error().message, HasSubstr("byte 2: found 0xFF"));
}

// A megabyte of one letter, without spaces: what takes n log n steps takes a second or two even
// without optimisation; what takes n * n would take hours.
TEST(Encoding, AMegabyteOfOneLetterTakesNoQuadraticTime) {
  const std::string text(1 << 20, 'a');
  std::vector<std::string> pieces{"\u2581", "a"};
  std::vector<std::pair<std::string, std::string>> pairs;
  for (std::string piece = "a"; piece.size() < 64; piece += piece) {
    pieces.push_back(piece + piece);
    pairs.emplace_back(piece, piece);
  }
  Vocabulary with_words = byte_vocabulary(pairs);
  with_words.splits = {{.pattern = R"(\s*[\r\n]+|\s+(?!\S)|\p{L}+)"}};
  for (Vocabulary vocabulary : {scored_vocabulary(pieces), byte_vocabulary(pairs), with_words}) {
    const Tokenizer tokenizer = created(std::move(vocabulary));
    const auto start = std::chrono::steady_clock::now();
    const std::vector<TokenId> tokens = encoded(tokenizer, text);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_EQ(tokenizer.decode(tokens), text);
    EXPECT_LT(tokens.size(), text.size() / 64 + 64);
  }
}

// Every way of splitting that is known, on a megabyte that any of its parts may run over.
TEST(Splitting, AMegabyteOfOneCharacterIsNoTroubleForAnyPattern) {
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "falcon", "default", "starcoder",
                           "deepseek-coder", "deepseek-v3", "tekken", "gpt-4o"}) {
    const ByteLevelKind* kind = byte_level_kind(name);
    ASSERT_NE(kind, nullptr) << name;
    Vocabulary vocabulary;
    for (const std::string_view pattern : kind->patterns) {
      vocabulary.splits.push_back({.pattern = std::string(pattern)});
    }
    const auto splitter = Splitter::create(vocabulary);
    ASSERT_TRUE(splitter.has_value()) << splitter.error().message;
    for (const char letter : {'a', 'A', '1', ' ', '\n', '!', '\''}) {
      const std::string text(1 << 20, letter);
      const auto pieces = splitter->split(text);
      ASSERT_TRUE(pieces.has_value()) << name << ": " << pieces.error().message;
      std::size_t num_bytes = 0;
      for (const std::string_view piece : *pieces) num_bytes += piece.size();
      EXPECT_EQ(num_bytes, text.size()) << name;
    }
  }
}

TEST(VocabularyCheck, ContradictionsAreErrorsThatNameFileAndPlace) {
  Vocabulary vocabulary = small();
  vocabulary.scores.pop_back();
  EXPECT_THAT(error_of(vocabulary), HasSubstr("small.gguf: scores: found 265"));
  vocabulary = small();
  vocabulary.scores[5] = NAN;
  EXPECT_THAT(error_of(vocabulary), HasSubstr("score 5: found NaN"));
  vocabulary = small();
  vocabulary.bos = 266;
  EXPECT_THAT(error_of(vocabulary),
              HasSubstr("begins a text: found token 266, expected one below"));
  vocabulary = byte_vocabulary({});
  vocabulary.merges = {{1, 2, 256}};
  EXPECT_THAT(error_of(vocabulary), HasSubstr("merge 0: found token 256"));
  vocabulary = byte_vocabulary({});
  vocabulary.splits = {{.pattern = "(a"}};
  EXPECT_THAT(error_of(vocabulary), HasSubstr("pre-tokenizer 1: found a pattern with an error"));
  EXPECT_THAT(error_of(Vocabulary{}), HasSubstr("found 0 tokens"));
  vocabulary = small();
  vocabulary.tokens[1] = std::string(2000, 'x');
  EXPECT_THAT(error_of(vocabulary), HasSubstr("tokens[1]: found a special token of 2000 bytes"));
}

TEST(Splitting, APatternThatNeedsTooManyStepsIsAnError) {
  Vocabulary vocabulary = byte_vocabulary({});
  vocabulary.splits = {{.pattern = "(?:a+a+)+bd"}};
  const auto tokens = created(vocabulary).encode(std::string(200, 'a') + "d");
  ASSERT_FALSE(tokens.has_value());
  EXPECT_EQ(tokens.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(tokens.error().message, HasSubstr("pre-tokenizer 1"));
}

}  // namespace
}  // namespace kvarto
