// The trained models of the shared collection against what llama2.c, NumPy in double precision and
// llama.cpp computed with them. Skipped where the collection is not there.

#include "runtime/stories.h"

#include <cmath>

#include "samples/folders.h"

namespace kvarto {
namespace {

using samples::golden_stories;
using samples::open_session;

constexpr std::uint32_t kBos = 1;
constexpr const char* kNoCollection = "the shared collection of models is not there";

std::filesystem::path model(const char* name) {
  return *samples::shared_folder() / "models" / name;
}

SessionOptions options(const char* key, const char* value) {
  SessionOptions options;
  options.context = 512;
  options.cache_types = {.key = key, .value = value, .index = ""};
  options.num_threads = 2;
  return options;
}

class StoriesFrom : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!samples::shared_folder()) GTEST_SKIP() << kNoCollection;
  }
};

INSTANTIATE_TEST_SUITE_P(EveryContainer, StoriesFrom,
                         testing::Values("stories260K/stories260Ktok512.gguf",
                                         "stories260K/hf-f32/model.safetensors",
                                         "stories260K/hf-bf16-sharded"));

// Weights that are rounded to bf16 take another turn at a near tie.
TEST_P(StoriesFrom, GreedyTextIsThePublishedOne) {
  if (std::string_view(GetParam()).find("bf16") != std::string_view::npos) return;
  Session session = open_session(model(GetParam()), options("f32", "f32"));
  std::ifstream file(model("stories260K/greedy_expected.txt"));
  std::string expected((std::istreambuf_iterator<char>(file)), {});
  while (!expected.empty() && expected.back() == '\n') expected.pop_back();
  std::vector<std::uint32_t> tokens;
  const std::uint32_t first[] = {kBos};
  auto logits = session.feed(first);
  std::string text;
  while (text.size() <= expected.size() && session.num_tokens() < session.context()) {
    ASSERT_TRUE(logits.has_value()) << logits.error().message;
    const std::uint32_t next[] = {samples::largest(*logits)};
    tokens.push_back(next[0]);
    text = samples::text_of(model("stories260K/stories260Ktok512.gguf"), tokens);
    logits = session.feed(next);
  }
  // Pieces of the first word begin with a space.
  if (!text.empty() && text.front() == ' ') text.erase(0, 1);
  EXPECT_EQ(text.substr(0, expected.size()), expected);
}

TEST_P(StoriesFrom, PerplexityIsThatOfDoublePrecision) {
  const auto stories = golden_stories();
  Session session = open_session(model(GetParam()), options("f32", "f32"));
  const double perplexity = std::exp(samples::mean_loss(session, stories, stories.size()));
  EXPECT_NEAR(perplexity / 4.173755679623124, 1, 1e-4);
}

TEST(Stories, LossesAndLogitsAreThoseOfDoublePrecision) {
  const auto stories = golden_stories();
  if (stories.empty()) GTEST_SKIP() << kNoCollection;
  Session session =
      open_session(model("stories260K/stories260Ktok512.gguf"), options("f32", "f32"));
  const auto found = samples::losses(session, stories[0].tokens);
  ASSERT_EQ(found.size(), stories[0].nll.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    // Logits of up to 20 with relative errors of 1e-5.
    EXPECT_NEAR(found[i], stories[0].nll[i], 2e-4) << "token " << i + 1;
  }
  session.clear();
  const auto logits = session.feed(stories[0].tokens);
  ASSERT_TRUE(logits.has_value());
  double largest = 0;
  for (const double logit : stories[0].logits_last) largest = std::max(largest, std::abs(logit));
  for (std::size_t i = 0; i < logits->size(); ++i) {
    EXPECT_NEAR((*logits)[i], stories[0].logits_last[i], 1e-4 * largest) << "logit " << i;
  }
}

TEST(Stories, OneTokenAtATimeGivesWhatAChunkGives) {
  const auto stories = golden_stories();
  if (stories.empty()) GTEST_SKIP() << kNoCollection;
  const auto path = model("stories260K/hf-f32");
  Session chunked = open_session(path, options("f32", "f32"));
  Session stepped = open_session(path, options("f32", "f32"));
  const auto& tokens = stories[0].tokens;
  const auto expected = chunked.feed(tokens);
  ASSERT_TRUE(expected.has_value());
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    ASSERT_TRUE(stepped.feed(std::span(tokens).subspan(i, 1)).has_value());
  }
  const auto found = stepped.feed(std::span(tokens).last(1));
  ASSERT_TRUE(found.has_value());
  double largest = 0;
  for (const float logit : *expected) largest = std::max(largest, std::abs(double{logit}));
  for (std::size_t i = 0; i < found->size(); ++i) {
    EXPECT_NEAR((*found)[i], (*expected)[i], 1e-4 * largest) << "logit " << i;
  }
}

// Perplexities of llama.cpp over stories 0 to 23 (kv_quant_reference.json).
struct QuantisedCase {
  const char* key;
  const char* value;
  double perplexity;
};
void PrintTo(const QuantisedCase& c, std::ostream* out) { *out << c.key << " " << c.value; }

class StoriesWithCache : public testing::TestWithParam<QuantisedCase> {};
INSTANTIATE_TEST_SUITE_P(Types, StoriesWithCache,
                         testing::Values(QuantisedCase{"f16", "f16", 3.7541},
                                         QuantisedCase{"q8_0", "q8_0", 3.7619},
                                         QuantisedCase{"q4_0", "q4_0", 7.8965},
                                         QuantisedCase{"q4_0", "f16", 7.9245},
                                         QuantisedCase{"f16", "q4_0", 3.7649}));

TEST_P(StoriesWithCache, PerplexityIsThatOfLlamaCppWithinOnePercent) {
  const auto stories = golden_stories();
  if (stories.empty()) GTEST_SKIP() << kNoCollection;
  Session session = open_session(model("stories260K-hd32/stories260K-hd32.gguf"),
                                 options(GetParam().key, GetParam().value));
  const double perplexity = std::exp(samples::mean_loss(session, stories, 24));
  EXPECT_NEAR(perplexity / GetParam().perplexity, 1, 0.01);
}

}  // namespace
}  // namespace kvarto
