#include "kvarto/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace kvarto {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Sampler created(const SamplerOptions& options) { return *Sampler::create(options); }

std::map<TokenId, int> counts(const SamplerOptions& options, const std::vector<float>& logits,
                              int num_draws) {
  Sampler sampler = created(options);
  std::map<TokenId, int> drawn;
  for (int i = 0; i < num_draws; ++i) ++drawn[sampler.sample(logits)];
  return drawn;
}

std::set<TokenId> drawn_tokens(const SamplerOptions& options, const std::vector<float>& logits) {
  std::set<TokenId> tokens;
  for (const auto& [token, count] : counts(options, logits, 20'000)) tokens.insert(token);
  return tokens;
}

// Probabilities 1/2, 1/4, 1/8, 1/16 and 1/16 of the tokens 3, 1, 4, 0 and 2.
const std::vector<float> kHalves = {std::log(1 / 16.f), std::log(1 / 4.f), std::log(1 / 16.f),
                                    std::log(1 / 2.f), std::log(1 / 8.f)};

TEST(Sampler, GreedyTakesTheMostLikelyAndOfEqualOnesTheFirst) {
  Sampler sampler = created({});
  EXPECT_EQ(sampler.sample(kHalves), 3u);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 7, 7}), 1u);
  EXPECT_EQ(sampler.sample(std::vector<float>{NAN, -5, -6}), 1u);
}

TEST(Sampler, EqualSeedsGiveEqualTokensAndOthersDoNot) {
  const auto sequence = [](std::uint64_t seed) {
    Sampler sampler = created({.temperature = 1, .seed = seed});
    std::vector<TokenId> tokens;
    for (int i = 0; i < 64; ++i) tokens.push_back(sampler.sample(kHalves));
    return tokens;
  };
  EXPECT_EQ(sequence(7), sequence(7));
  EXPECT_NE(sequence(7), sequence(8));
}

// SplitMix64 from seed 1234567: first numbers as published with the generator (Vigna,
// splitmix64.c; Rosetta Code). 6457827717110365317 / 2^64 = 0.35, 3203168211198807973 / 2^64 =
// 0.17, 9817491932198370423 / 2^64 = 0.53.
TEST(Sampler, DrawsByTheNumbersOfSplitMix64) {
  Sampler sampler = created({.temperature = 1, .seed = 1'234'567});
  const std::vector<float> even(10, 0.0f);  // token i for numbers in [i / 10, (i + 1) / 10)
  EXPECT_EQ(sampler.sample(even), 3u);
  EXPECT_EQ(sampler.sample(even), 1u);
  EXPECT_EQ(sampler.sample(even), 5u);
}

TEST(Sampler, DrawsInProportionToProbability) {
  const int num_draws = 100'000;
  auto drawn = counts({.temperature = 1, .seed = 3}, kHalves, num_draws);
  // Five standard deviations of a binomial count.
  for (const auto& [token, expected] :
       std::map<TokenId, double>{{3, 0.5}, {1, 0.25}, {4, 0.125}, {0, 0.0625}, {2, 0.0625}}) {
    const double deviation = std::sqrt(num_draws * expected * (1 - expected));
    EXPECT_NEAR(drawn[token], num_draws * expected, 5 * deviation) << token;
  }
  // At temperature 1/2 probabilities are squared: 4 to 1 between the first two.
  drawn = counts({.top_k = 2, .temperature = 0.5, .seed = 3}, kHalves, num_draws);
  EXPECT_NEAR(drawn[3], num_draws * 0.8, 5 * std::sqrt(num_draws * 0.16));
}

TEST(Sampler, FiltersLeaveWhatTheySay) {
  EXPECT_THAT(drawn_tokens({.temperature = 1}, kHalves), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(drawn_tokens({.top_k = 3, .temperature = 1}, kHalves), ElementsAre(1, 3, 4));
  EXPECT_THAT(drawn_tokens({.top_k = 1, .temperature = 1}, kHalves), ElementsAre(3));
  EXPECT_THAT(drawn_tokens({.top_k = 4, .temperature = 1}, kHalves), ElementsAre(0, 1, 3, 4));
  // 1/2 + 1/4 reach 0.7 and not 0.8.
  EXPECT_THAT(drawn_tokens({.top_p = 0.7, .temperature = 1}, kHalves), ElementsAre(1, 3));
  EXPECT_THAT(drawn_tokens({.top_p = 0.8, .temperature = 1}, kHalves), ElementsAre(1, 3, 4));
  EXPECT_THAT(drawn_tokens({.top_p = 0.0, .temperature = 1}, kHalves), ElementsAre(3));
  // 0.2 of 1/2 is between 1/8 and 1/16.
  EXPECT_THAT(drawn_tokens({.min_p = 0.2, .temperature = 1}, kHalves), ElementsAre(1, 3, 4));
  EXPECT_THAT(drawn_tokens({.min_p = 1.0, .temperature = 1}, kHalves), ElementsAre(3));
}

// Of the two that top-k leaves, the first has 2/3; without top-k before it, top-p would leave more.
TEST(Sampler, TopPActsOnWhatTopKLeft) {
  EXPECT_THAT(drawn_tokens({.top_k = 2, .top_p = 0.6, .temperature = 1}, kHalves), ElementsAre(3));
  EXPECT_THAT(drawn_tokens({.top_p = 0.6, .temperature = 1}, kHalves), ElementsAre(1, 3));
}

// A high temperature makes all equal, but top-p has been applied before.
TEST(Sampler, FiltersActBeforeTheTemperature) {
  EXPECT_THAT(drawn_tokens({.top_p = 0.7, .temperature = 1000}, kHalves), ElementsAre(1, 3));
}

TEST(Sampler, ImpossibleAndInfiniteLogitsAreNoTrouble) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(drawn_tokens({.temperature = 1}, {-infinity, 1, NAN}), ElementsAre(1));
  EXPECT_THAT(drawn_tokens({.temperature = 1}, {0, infinity, 5}), ElementsAre(1));
  EXPECT_THAT(drawn_tokens({.temperature = 1}, {NAN, NAN}), ElementsAre(0));
}

TEST(Sampler, OptionsOutOfRangeAreErrors) {
  const auto message = [](const SamplerOptions& options) {
    const auto sampler = Sampler::create(options);
    return sampler.has_value() ? "accepted" : sampler.error().message;
  };
  EXPECT_THAT(message({.temperature = -1}), HasSubstr("temperature: found -1"));
  EXPECT_THAT(message({.temperature = NAN}), HasSubstr("temperature: found nan"));
  EXPECT_THAT(message({.top_p = 1.5}), HasSubstr("top-p: found 1.5"));
  EXPECT_THAT(message({.min_p = -0.1}), HasSubstr("min-p: found -0.1"));
}

}  // namespace
}  // namespace kvarto
