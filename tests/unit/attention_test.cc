#include "kvarto/attention.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/thread_pool.h"
#include "reference/cache_case.h"

namespace kvarto {
namespace {

using test::CacheCase;
using test::CaseShape;

struct BadCall {
  const char* name;
  std::function<void(DecodeCall&)> spoil;
  ErrorCode code;
  const char* message;
};

const std::vector<float> kNan(4, NAN);  // one for each query head
const std::vector<float> kInfinite(4, INFINITY);

const BadCall kBadCalls[] = {
    {"NullBase", [](DecodeCall& c) { c.view.k.base = nullptr; }, ErrorCode::kInvalidArgument,
     "k: base: found null"},
    {"NoHeads", [](DecodeCall& c) { c.view.v.heads = 0; }, ErrorCode::kInvalidArgument,
     "v: heads: found 0"},
    {"OtherHeads", [](DecodeCall& c) { c.view.v.heads = 3; }, ErrorCode::kInvalidArgument,
     "v: heads: found 3, expected 2"},
    {"WideHead", [](DecodeCall& c) { c.view.k.width = 1025; }, ErrorCode::kInvalidArgument,
     "k: width: found 1025, expected 1 to 1024"},
    {"NoRows", [](DecodeCall& c) { c.view.rows_per_block = 0; }, ErrorCode::kInvalidArgument,
     "rows_per_block: found 0"},
    {"PartTile", [](DecodeCall& c) { c.view.rows_per_block = 24; }, ErrorCode::kInvalidArgument,
     "rows_per_block: found 24, expected a multiple of 16"},
    {"TiledValues", [](DecodeCall& c) { c.view.v.layout.order = RowOrder::kHeadTiles; },
     ErrorCode::kUnsupported, "v: layout: found tiles"},
    {"OnlyCounted", [](DecodeCall& c) { c.view.k.codec = Codec::kInt2; }, ErrorCode::kUnsupported,
     "k: codec: found int2"},
    {"TiledBlocks", [](DecodeCall& c) { c.view.k.codec = Codec::kQ5_0; }, ErrorCode::kUnsupported,
     "k: layout: found tiles of q5_0, expected rows"},
    {"TilesOfValues", [](DecodeCall& c) { c.view.k.layout.order = RowOrder::kHeadValueTiles; },
     ErrorCode::kUnsupported, "k: layout: found tiles of values"},
    {"QueryBits", [](DecodeCall& c) { c.options.query_bits = 4; }, ErrorCode::kInvalidArgument,
     "query_bits: found 4, expected 16 or 8"},
    {"PartBlock",
     [](DecodeCall& c) {
       c.view.v.codec = Codec::kQ4_0;
       c.view.v.width = 33;
       c.out = c.out.first(4 * 33);
     },
     ErrorCode::kInvalidArgument, "v: width: found 33, expected a multiple of 32 for q4_0"},
    {"UnevenGroup", [](DecodeCall& c) { c.num_q_heads = 3; }, ErrorCode::kInvalidArgument,
     "num_q_heads: found 3, expected a multiple of the 2"},
    {"ShortQuery", [](DecodeCall& c) { c.q = c.q.first(c.q.size() - 1); },
     ErrorCode::kInvalidArgument, "q: found"},
    {"ShortOut", [](DecodeCall& c) { c.out = c.out.first(1); }, ErrorCode::kInvalidArgument,
     "out: found 1 values"},
    {"ShortLse", [](DecodeCall& c) { c.lse = c.lse.first(1); }, ErrorCode::kInvalidArgument,
     "lse: found 1 values"},
    {"NanScale", [](DecodeCall& c) { c.options.scale = NAN; }, ErrorCode::kInvalidArgument,
     "scale: found nan"},
    {"NanSlope", [](DecodeCall& c) { c.options.alibi_slopes = kNan; }, ErrorCode::kInvalidArgument,
     "alibi_slopes: found nan"},
    {"InfiniteSink", [](DecodeCall& c) { c.options.sink_logits = kInfinite; },
     ErrorCode::kInvalidArgument, "sink_logits: found inf"},
    {"UnknownCodec", [](DecodeCall& c) { c.view.v.codec = static_cast<Codec>(255); },
     ErrorCode::kInvalidArgument, "v: codec: found 255"},
    {"UnknownOrder", [](DecodeCall& c) { c.view.k.layout.order = static_cast<RowOrder>(9); },
     ErrorCode::kInvalidArgument, "k: layout: order: found 9"},
    {"NegativeCap", [](DecodeCall& c) { c.options.soft_cap = -1; }, ErrorCode::kInvalidArgument,
     "soft_cap: found -1"},
};

TEST(AttentionErrors, NameTheFieldThatIsWrongAndLeaveTheOutputAlone) {
  auto runner = AttentionRunner::create({});
  ASSERT_TRUE(runner.has_value());
  for (const BadCall& bad : kBadCalls) {
    CacheCase cache{CaseShape{}};
    DecodeCall call = cache.decode_call();
    bad.spoil(call);
    const auto report = runner->decode(call);
    ASSERT_FALSE(report.has_value()) << bad.name;
    EXPECT_EQ(report.error().code, bad.code) << bad.name;
    EXPECT_NE(report.error().message.find(bad.message), std::string::npos)
        << report.error().message;
    for (const float x : cache.out) ASSERT_TRUE(std::isnan(x)) << bad.name;
  }
}

TEST(AttentionErrors, RefuseTablesThatDoNotHoldTheRows) {
  auto runner = AttentionRunner::create({});
  CacheCase cache{CaseShape{}};
  cache.sequences[0].num_tokens = 113;  // 8 blocks, the table has 7
  EXPECT_FALSE(runner->decode(cache.decode_call()).has_value());
  cache.sequences[0].num_tokens = 100;
  cache.sequences[0].first_block = 2;  // rows before 32 are gone
  cache.sequences[0].block_table = cache.sequences[0].block_table.subspan(2);
  EXPECT_FALSE(runner->decode(cache.decode_call()).has_value());
  EXPECT_TRUE(runner->decode(cache.decode_call({.window = 68})).has_value());
  EXPECT_FALSE(runner->decode(cache.decode_call({.window = 69})).has_value());
}

TEST(AttentionErrors, RefuseMoreQueriesThanTokens) {
  auto runner = AttentionRunner::create({});
  CacheCase cache{CaseShape{}};
  const DecodeCall decode = cache.decode_call();
  const std::vector<std::uint64_t> too_long = {101};
  PrefillCall call;
  call.view = decode.view;
  call.num_q_heads = decode.num_q_heads;
  call.q_lens = too_long;
  EXPECT_FALSE(runner->prefill(call).has_value());
  call.q_lens = {};
  EXPECT_FALSE(runner->prefill(call).has_value());
}

TEST(AttentionErrors, RefuseNoThreadsAndTooMany) {
  EXPECT_FALSE(AttentionRunner::create({.num_threads = 0}).has_value());
  EXPECT_FALSE(AttentionRunner::create({.num_threads = 1025}).has_value());
}

TEST(AttentionReport, CountsRowsAndBytesOfTheView) {
  auto runner = AttentionRunner::create({.num_threads = 2});
  CaseShape shape;
  shape.lengths = {100, 30};
  CacheCase cache(shape);
  const auto report = runner->decode(cache.decode_call());
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->rows_read, 130u);
  EXPECT_EQ(report->bytes_read, 130u * 2 * 2 * 64 * 2);  // rows x K, V x heads x elements x bytes
  EXPECT_EQ(report->layout, "hardware");
  EXPECT_EQ(report->arith, "f32");
  EXPECT_EQ(report->num_threads, 2u);
  const auto windowed = runner->decode(cache.decode_call({.window = 40}));
  EXPECT_EQ(windowed->rows_read, 70u);
}

TEST(AttentionRunner, SeveralMayReadOneCacheAtTheSameTime) {
  CaseShape shape;
  shape.lengths = {300, 17, 120};
  CacheCase cache(shape);
  CacheCase expected(shape);
  auto reference = AttentionRunner::create({.num_threads = 2});
  ASSERT_TRUE(reference->decode(expected.decode_call()).has_value());
  std::vector<std::thread> users;
  std::vector<int> num_wrong(4);
  for (std::size_t user = 0; user < num_wrong.size(); ++user) {
    users.emplace_back([&, user] {
      auto runner = AttentionRunner::create({.num_threads = 2});
      std::vector<float> out(cache.out.size());
      std::vector<float> lse(cache.lse.size());
      for (int round = 0; round < 20; ++round) {
        DecodeCall call;
        call.view = cache.view();
        call.num_q_heads = shape.q_heads;
        call.q = cache.q;
        call.out = out;
        call.lse = lse;
        if (!runner->decode(call).has_value() || out != expected.out) ++num_wrong[user];
      }
    });
  }
  for (std::thread& user : users) user.join();
  for (const int wrong : num_wrong) EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, RunsEveryThreadOnceARound) {
  for (const std::size_t num_threads : {1u, 2u, 5u}) {
    ThreadPool pool(num_threads);
    std::vector<int> rounds(num_threads);  // written without a lock: each thread has its own
    for (int round = 0; round < 500; ++round) {
      pool.run([&](std::size_t thread) { ++rounds[thread]; });
    }
    for (const int count : rounds) EXPECT_EQ(count, 500);
  }
}

TEST(ThreadPool, GoesOnWithoutThreadsThatGetNoCore) {
  // More threads than any machine has cores: most find their share of a short task already run.
  constexpr std::size_t kThreads = 64;
  ThreadPool pool(kThreads);
  std::vector<int> rounds(kThreads);  // a share may change threads: each sees what others wrote
  std::atomic<int> total{0};
  for (int round = 0; round < 200; ++round) {
    pool.run([&](std::size_t thread) {
      ++rounds[thread];
      total.fetch_add(1, std::memory_order_relaxed);
    });
    ASSERT_EQ(total.load(), (round + 1) * static_cast<int>(kThreads));
  }
  EXPECT_EQ(rounds, std::vector<int>(kThreads, 200));
}

// A thread whose core another one keeps: the owner must not wait for the end of its slice, hundreds
// of times.
TEST(ThreadPool, RunsTheShareOfAThreadThatIsHeldUp) {
  ThreadPool pool(2);
  std::vector<std::thread::id> ran_by(2);
  bool is_taken_over = false;
  // The second thread sleeps by now, and waking it takes longer than an empty share.
  for (int round = 0; round < 1000 && !is_taken_over; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.run([&](std::size_t thread) { ran_by[thread] = std::this_thread::get_id(); });
    EXPECT_EQ(ran_by[0], std::this_thread::get_id());
    is_taken_over = ran_by[1] == std::this_thread::get_id();
  }
  EXPECT_TRUE(is_taken_over);
}

TEST(ThreadPool, WakesThreadsThatWentToSleep) {
  ThreadPool pool(3);
  std::vector<int> rounds(3);
  for (int round = 0; round < 3; ++round) {
    pool.run([&](std::size_t thread) { ++rounds[thread]; });
    // Longer than idle threads spin.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < end) {
    }
  }
  EXPECT_EQ(rounds, std::vector<int>(3, 3));
}

}  // namespace
}  // namespace kvarto
