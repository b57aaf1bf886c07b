// What a session accepts, refuses and reports.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kvarto/runtime.h"
#include "runtime/tiny_model.h"
#include "samples/folders.h"

namespace kvarto {
namespace {

using testing::HasSubstr;

// Tiny models by name, opened once.
const Checkpoint& tiny(const std::string& name) {
  static std::map<std::string, Checkpoint> opened;
  static const samples::TinyModels models =
      samples::tiny_models(std::string(KVARTO_SOURCE_DIR) + "/tests/golden");
  const auto found = opened.find(name);
  if (found != opened.end()) return found->second;
  const auto model = std::find_if(models.models.begin(), models.models.end(),
                                  [&](const samples::TinyModel& m) { return m.name == name; });
  // The mapping outlives the files' names.
  const samples::TemporaryFolder folder;
  folder.write("config.json", model->config.dump());
  folder.write("model.safetensors", samples::safetensors_of(model->tensors));
  return opened.emplace(name, Checkpoint::open(folder.path()).value()).first->second;
}

SessionOptions small_options() {
  SessionOptions options;
  options.context = 24;
  options.chunk_size = 8;
  return options;
}

const std::vector<std::uint32_t> kTokens = {1, 11, 35, 12, 3, 8, 27, 60, 46, 46, 60, 27};

std::vector<float> fed(Session& session, std::span<const std::uint32_t> tokens) {
  const auto logits = session.feed(tokens);
  if (!logits) {
    ADD_FAILURE() << logits.error().message;
    return {};
  }
  return {logits->begin(), logits->end()};
}

TEST(Session, LogitsThatAreNoNumbersAreAnError) {
  samples::TinyModels models =
      samples::tiny_models(std::string(KVARTO_SOURCE_DIR) + "/tests/golden");
  const auto model = std::find_if(models.models.begin(), models.models.end(),
                                  [](const samples::TinyModel& m) { return m.name == "qwen3"; });
  model->tensors.at("model.norm.weight").values[0] = std::nanf("");
  const samples::TemporaryFolder folder;
  folder.write("config.json", model->config.dump());
  folder.write("model.safetensors", samples::safetensors_of(model->tensors));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  auto session = Session::create(*checkpoint, small_options()).value();
  const auto refused = [&](const Result<std::span<const float>>& logits) {
    ASSERT_FALSE(logits.has_value());
    EXPECT_EQ(logits.error().code, ErrorCode::kCorruptData);
    EXPECT_THAT(logits.error().message, HasSubstr("logits: found nan for token 0 after position"));
    EXPECT_EQ(session.num_tokens(), 0u);
  };
  refused(session.feed(kTokens));
  std::size_t num_told = 0;
  FeedCallbacks callbacks;
  callbacks.on_logits = [&](std::uint64_t, std::span<const float>) { ++num_told; };
  refused(session.feed(kTokens, callbacks));
  EXPECT_EQ(num_told, 0u);
}

TEST(Session, OptionsThatCannotBeAreRefused) {
  const auto message = [](const SessionOptions& options) {
    const auto session = Session::create(tiny("qwen3"), options);
    return session ? std::string("created") : session.error().message;
  };
  SessionOptions options = small_options();
  options.num_threads = 0;
  EXPECT_THAT(message(options), HasSubstr("threads: found 0"));
  options = small_options();
  options.chunk_size = 0;
  EXPECT_THAT(message(options), HasSubstr("chunk size: found 0"));
  options = small_options();
  options.cache_types = {"q9", "f16", ""};
  EXPECT_THAT(message(options), HasSubstr("q9"));
  options = small_options();
  options.block_size = 0;
  EXPECT_NE(message(options), "created");
  options.block_size = 16;
  options.arith = Arith::kF16;  // a cache of bf16
  EXPECT_NE(message(options), "created");
}

TEST(Session, TokensThatCannotBeChangeNothing) {
  auto session = Session::create(tiny("qwen3"), small_options()).value();
  auto other = Session::create(tiny("qwen3"), small_options()).value();
  fed(session, kTokens);
  const std::uint32_t outside[] = {5, 61};
  EXPECT_THAT(session.feed(outside).error().message, HasSubstr("found id 61 at 1"));
  EXPECT_EQ(session.feed({}).error().code, ErrorCode::kInvalidArgument);
  const std::vector<std::uint32_t> many(13, 5);
  EXPECT_THAT(session.feed(many).error().message, HasSubstr("at most the 12"));
  EXPECT_EQ(session.num_tokens(), kTokens.size());
  fed(other, kTokens);
  const std::uint32_t next[] = {7};
  EXPECT_EQ(fed(session, next), fed(other, next));
}

TEST(Session, ContextCanBeFilledToItsLastToken) {
  auto session = Session::create(tiny("qwen3"), small_options()).value();
  fed(session, std::vector<std::uint32_t>(23, 4));
  const std::uint32_t next[] = {7};
  EXPECT_TRUE(session.feed(next).has_value());
  EXPECT_EQ(session.num_tokens(), session.context());
  EXPECT_FALSE(session.feed(next).has_value());
}

TEST(Session, ContextIsTheModelsOwnUnlessAsked) {
  SessionOptions options;
  options.context = 0;
  EXPECT_EQ(Session::create(tiny("qwen3"), options)->context(), 64u);
  options.context = 500;
  EXPECT_EQ(Session::create(tiny("qwen3"), options)->context(), 500u);
}

TEST(Session, ClearedIsAsGoodAsNew) {
  auto session = Session::create(tiny("gemma3"), small_options()).value();
  const auto first = fed(session, kTokens);
  session.clear();
  EXPECT_EQ(session.num_tokens(), 0u);
  EXPECT_EQ(fed(session, kTokens), first);
}

TEST(Session, ProgressAndLogitsComeInOrder) {
  auto session = Session::create(tiny("qwen3"), small_options()).value();
  std::vector<std::uint64_t> done;
  std::vector<std::uint64_t> indices;
  std::vector<float> last;
  FeedCallbacks callbacks;
  callbacks.on_progress = [&](std::uint64_t num_done, std::uint64_t num_tokens) {
    EXPECT_EQ(num_tokens, kTokens.size());
    done.push_back(num_done);
  };
  callbacks.on_logits = [&](std::uint64_t index, std::span<const float> logits) {
    indices.push_back(index);
    last.assign(logits.begin(), logits.end());
  };
  const auto logits = session.feed(kTokens, callbacks);
  ASSERT_TRUE(logits.has_value());
  EXPECT_EQ(done, (std::vector<std::uint64_t>{8, 12}));
  ASSERT_EQ(indices.size(), kTokens.size());
  for (std::size_t i = 0; i < indices.size(); ++i) EXPECT_EQ(indices[i], i);
  for (std::size_t i = 0; i < last.size(); ++i) {
    EXPECT_NEAR(last[i], (*logits)[i], 1e-5 * std::abs(last[i]) + 1e-5);
  }
}

TEST(Session, CountsTokensAndBytes) {
  SessionOptions options = small_options();
  options.context = 64;
  auto session = Session::create(tiny("gemma3"), options).value();
  fed(session, kTokens);
  for (std::uint32_t i = 0; i < 40; ++i) fed(session, std::span(kTokens).subspan(i % 12, 1));
  const SessionStats stats = session.stats();
  EXPECT_EQ(stats.prefill_tokens, kTokens.size());
  EXPECT_EQ(stats.decode_tokens, 40u);
  EXPECT_GT(stats.decode_s, 0);
  EXPECT_LE(stats.decode_attention_s, stats.decode_s);
  EXPECT_EQ(stats.planned_cache_bytes, stats.allocated_cache_bytes);
  EXPECT_LE(stats.used_cache_bytes, stats.peak_cache_bytes);
  EXPECT_LE(stats.peak_cache_bytes, stats.allocated_cache_bytes);
  EXPECT_EQ(stats.attention.layout, "hardware");
}

TEST(Session, BlocksThatWindowsLeftAreGivenBack) {
  SessionOptions options = small_options();
  options.context = 64;
  options.block_size = 4;
  auto session = Session::create(tiny("gemma3"), options).value();
  const auto used = [&](std::uint64_t num_tokens) {
    session.clear();
    fed(session, std::vector<std::uint32_t>(num_tokens, 3));
    return session.stats().used_cache_bytes;
  };
  // 7 layers, 6 of them with a window of 8 tokens (2 blocks, 3 where they are not aligned): K and V
  // of 2 heads x 32 x 2 bytes, 256 bytes a token and layer.
  const std::uint64_t token_bytes = 2 * 2 * 32 * 2;
  EXPECT_EQ(used(40), (40 + 6 * 8) * token_bytes);
  EXPECT_EQ(used(60), (60 + 6 * 8) * token_bytes);
  EXPECT_EQ(used(58), (60 + 6 * 12) * token_bytes);
}

// Rows that no window sees any more are given back chunk by chunk; a session whose one chunk is the
// whole prompt holds all of them to its end. The model cannot tell.
TEST(Session, LongPromptsAreThoseOfASessionThatGivesNothingBack) {
  constexpr std::uint64_t kLong = 3000;
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < kLong; ++i) tokens.push_back(3 + i * 7919 % 58);
  SessionOptions options = small_options();
  options.context = kLong;
  options.cache_types = {"f32", "f32", ""};
  options.block_size = 4;
  const auto losses = [&](std::uint64_t chunk_size, const FeedCallbacks& more) {
    options.chunk_size = chunk_size;
    auto session = Session::create(tiny("gemma3"), options).value();
    std::vector<double> found;
    FeedCallbacks callbacks = more;
    callbacks.on_logits = [&](std::uint64_t i, std::span<const float> logits) {
      if (i + 1 < tokens.size()) found.push_back(token_loss(logits, tokens[i + 1]));
    };
    EXPECT_TRUE(session.feed(tokens, callbacks).has_value());
    const SessionStats stats = session.stats();
    EXPECT_EQ(stats.planned_cache_bytes, stats.allocated_cache_bytes);
    // One layer keeps all, six the blocks that their window of 8 tokens meets; K and V of 2 heads.
    EXPECT_EQ(stats.used_cache_bytes, (kLong + 6 * 8) * 2 * 2 * 32 * sizeof(float));
    // While a chunk runs, six layers hold it and the window before it, in whole blocks.
    EXPECT_LE(stats.peak_cache_bytes,
              (kLong + 6 * (chunk_size + 8 + 4)) * 2 * 2 * 32 * sizeof(float));
    return found;
  };
  const std::vector<double> released = losses(16, {});
  const std::vector<double> kept = losses(kLong, {});
  ASSERT_EQ(released.size(), kLong - 1);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    ASSERT_NEAR(released[i], kept[i], 1e-4 * kept[i]) << "token " << i;
  }
}

TEST(Session, ResultsAreTheSameForEqualThreads) {
  SessionOptions options = small_options();
  options.num_threads = 3;
  auto one = Session::create(tiny("llama, yarn"), options).value();
  auto two = Session::create(tiny("llama, yarn"), options).value();
  EXPECT_EQ(fed(one, kTokens), fed(two, kTokens));
}

TEST(Session, EveryCacheTypeThatRunsComesNear) {
  SessionOptions options = small_options();
  options.cache_types = {"f32", "f32", ""};
  auto exact = Session::create(tiny("qwen3"), options).value();
  const auto expected = fed(exact, kTokens);
  for (const char* type : {"f16", "bf16", "q8_0", "fp8_e4m3", "int8", "q5_1", "q4_0", "int4"}) {
    for (const Layout layout : {Layout::kHardware, Layout::kGeneric}) {
      options.cache_types = {type, type, ""};
      options.layout = layout;
      auto session = Session::create(tiny("qwen3"), options);
      ASSERT_TRUE(session.has_value()) << type << ": " << session.error().message;
      const auto found = fed(*session, kTokens);
      double dot = 0, a = 0, b = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        dot += double{expected[i]} * found[i];
        a += double{expected[i]} * expected[i];
        b += double{found[i]} * found[i];
      }
      // 4 bits of random keys leave this much in common; 8 and more bits nearly all.
      const bool is_coarse = type == std::string_view("q4_0") || type == std::string_view("int4");
      EXPECT_GT(dot / std::sqrt(a * b), is_coarse ? 0.9 : 0.99) << type;
    }
  }
}

TEST(TokenLoss, IsTheLogarithmOfTheSoftmax) {
  const float logits[] = {0, std::log(2.0f), std::log(5.0f)};
  EXPECT_NEAR(token_loss(logits, 0), std::log(8.0), 1e-7);
  EXPECT_NEAR(token_loss(logits, 2), std::log(8.0 / 5), 1e-7);
  const float large[] = {1000, 0};
  EXPECT_NEAR(token_loss(large, 1), 1000, 1e-6);
}

}  // namespace
}  // namespace kvarto
