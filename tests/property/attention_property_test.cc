// Statements about attention that hold for all inputs.

#include <gtest/gtest.h>

#include <cstring>

#include "attention/runner_state.h"
#include "reference/cache_case.h"
#include "reference/tolerance.h"

namespace kvarto::test {
namespace {

Result<AttentionReport> decode(CacheCase& test, const AttentionOptions& options = {},
                               std::uint32_t threads = 1) {
  RunnerState state(*active_kernels().value(), {.num_threads = threads});
  return decode_with(state, test.decode_call(options));
}

std::vector<float> output(CacheCase& test, const AttentionOptions& options = {},
                          std::uint32_t threads = 1) {
  const auto report = decode(test, options, threads);
  EXPECT_TRUE(report.has_value()) << (report.has_value() ? "" : report.error().message);
  std::vector<float> all = test.out;
  all.insert(all.end(), test.lse.begin(), test.lse.end());
  return all;
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

// Both were compared with the reference within `tolerance`; from each other they may differ by two.
void expect_close(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}
// Values here are below 6 and dots below 40 in 64 terms; tolerance.h with these figures.
const double kClose = 2 * 6 * output_tolerance({64, 2000, 40, 0, 0});

CaseShape seeded(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
  };
  CaseShape shape;
  shape.kv_heads = static_cast<std::uint32_t>(pick(1, 3));
  shape.q_heads = shape.kv_heads * static_cast<std::uint32_t>(pick(1, 8));
  shape.codec = static_cast<Codec>(pick(0, 2));
  shape.k_order = static_cast<RowOrder>(pick(0, 2));
  shape.v_order = static_cast<RowOrder>(pick(0, 1));
  shape.lengths.clear();
  for (std::uint64_t n = pick(1, 5); n > 0; --n) shape.lengths.push_back(pick(1, 700));
  shape.seed = seed;
  return shape;
}

constexpr std::uint64_t kNumSeeds = 12;

TEST(AttentionProperty, PagedEqualsContiguousBitForBit) {
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    CaseShape shape = seeded(seed);
    CacheCase paged(shape);
    shape.rows_per_block = 704;  // the whole sequence
    CacheCase contiguous(shape);
    contiguous.k = paged.k;
    contiguous.v = paged.v;
    contiguous.q = paged.q;
    for (std::size_t s = 0; s < shape.lengths.size(); ++s) {
      for (std::uint64_t row = 0; row < shape.lengths[s]; ++row) contiguous.write_row(s, row);
    }
    expect_same_bits(output(paged), output(contiguous));
  }
}

TEST(AttentionProperty, MovingPhysicalBlocksChangesNothingBitForBit) {
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    CacheCase test(seeded(seed));
    const std::vector<float> before = output(test, {}, 2);
    test.move_blocks(seed + 1);
    expect_same_bits(output(test, {}, 2), before);
  }
}

TEST(AttentionProperty, AnySplitEqualsTheUnsplitResult) {
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    CaseShape shape = seeded(seed);
    shape.lengths.push_back(1500);
    CacheCase test(shape);
    const std::vector<float> whole = output(test);
    for (const std::uint32_t threads : {2u, 3u, 7u}) {
      expect_close(output(test, {}, threads), whole, kClose);
    }
  }
}

TEST(AttentionProperty, EqualThreadCountsGiveEqualBits) {
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    CacheCase test(seeded(seed));
    const std::vector<float> first = output(test, {}, 4);
    expect_same_bits(output(test, {}, 4), first);
  }
}

TEST(AttentionProperty, AWindowAsLongAsTheSequenceChangesNothing) {
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    CacheCase test(seeded(seed));
    const std::vector<float> full = output(test);
    expect_same_bits(output(test, {.window = 700}), full);
    expect_same_bits(output(test, {.chunk = 1000}), full);
  }
}

TEST(AttentionProperty, GroupedQueriesEqualRepeatedHeads) {
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const CaseShape shape = seeded(seed);
    CacheCase grouped(shape);
    CaseShape repeated_shape = shape;
    repeated_shape.kv_heads = shape.q_heads;
    CacheCase repeated(repeated_shape);
    repeated.q = grouped.q;
    const std::uint32_t group = shape.q_heads / shape.kv_heads;
    for (std::size_t s = 0; s < shape.lengths.size(); ++s) {
      for (std::uint64_t row = 0; row < shape.lengths[s]; ++row) {
        for (std::uint32_t head = 0; head < shape.q_heads; ++head) {
          const std::size_t to = row * shape.q_heads + head;
          const std::size_t from = row * shape.kv_heads + head / group;
          std::copy_n(&grouped.k[s][from * shape.qk_dim], shape.qk_dim,
                      &repeated.k[s][to * shape.qk_dim]);
          std::copy_n(&grouped.v[s][from * shape.v_dim], shape.v_dim,
                      &repeated.v[s][to * shape.v_dim]);
        }
        repeated.write_row(s, row);
      }
    }
    expect_close(output(grouped), output(repeated), kClose);
  }
}

TEST(AttentionProperty, RowsOutsideTheWindowAreUnread) {
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    CacheCase test(seeded(seed));
    const AttentionOptions options{.window = 1 + seed * 17};
    const std::vector<float> clean = output(test, options);
    for (std::size_t s = 0; s < test.shape.lengths.size(); ++s) {
      const std::uint64_t length = test.shape.lengths[s];
      for (std::uint64_t row = 0; row + options.window < length; ++row)
        test.write_row(s, row, true);
    }
    expect_same_bits(output(test, options), clean);
  }
}

// Sequences 1 and 2 are made forks of sequence 0: they share its first blocks.
void fork(CacheCase& test, std::size_t parent, std::size_t child, std::uint64_t num_blocks) {
  for (std::uint64_t i = 0; i < num_blocks; ++i) test.tables[child][i] = test.tables[parent][i];
  const std::uint64_t rows = num_blocks * test.shape.rows_per_block;
  const std::size_t k_size = rows * test.shape.kv_heads * test.shape.qk_dim;
  const std::size_t v_size = rows * test.shape.kv_heads * test.shape.v_dim;
  std::copy_n(test.k[parent].begin(), k_size, test.k[child].begin());
  std::copy_n(test.v[parent].begin(), v_size, test.v[child].begin());
}

TEST(AttentionProperty, ASharedPrefixIsReadOnceAndChangesNoResult) {
  for (const RowOrder order : {RowOrder::kHeadTiles, RowOrder::kRowHead}) {
    CaseShape shape;
    shape.k_order = order;
    shape.v_order = order == RowOrder::kRowHead ? order : RowOrder::kHeadRow;
    shape.lengths = {500, 450, 400, 90};
    CacheCase test(shape);
    fork(test, 0, 1, 20);
    fork(test, 1, 2, 25);  // shares 5 blocks more with its parent than both with sequence 0
    for (const std::uint32_t threads : {1u, 3u}) {
      const auto report = decode(test, {}, threads);
      ASSERT_TRUE(report.has_value());
      // 320 rows for three, 80 for two (400 of sequence 2 end there), the rest one by one.
      EXPECT_EQ(report->rows_read, 320u + 180 + 80 + 50 + 0 + 90);
      EXPECT_LE(expect_matches_reference(test, {}), kPromisedError);
    }
    const AttentionOptions window{.window = 200};
    ASSERT_TRUE(decode(test, window).has_value());
    EXPECT_LE(expect_matches_reference(test, window), kPromisedError);
  }
}

TEST(AttentionProperty, PrefillEqualsDecodeTokenByToken) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    CaseShape shape = seeded(seed);
    shape.lengths = {150};
    CacheCase test(shape);
    constexpr std::uint64_t kTokens = 40;
    const std::size_t q_size = std::size_t{shape.q_heads} * shape.qk_dim;
    const std::size_t out_size = std::size_t{shape.q_heads} * shape.v_dim;
    std::vector<float> q(kTokens * q_size);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (float& x : q) x = normal(random);
    std::vector<float> out(kTokens * out_size);
    const std::vector<std::uint64_t> q_lens = {kTokens};
    RunnerState state(*active_kernels().value(), {.num_threads = 2});
    PrefillCall call;
    call.view = test.view();
    call.q_lens = q_lens;
    call.num_q_heads = shape.q_heads;
    call.q = q;
    call.out = out;
    ASSERT_TRUE(prefill_with(state, call).has_value());
    for (std::uint64_t i = 0; i < kTokens; ++i) {
      test.sequences[0].num_tokens = shape.lengths[0] - kTokens + i + 1;
      test.q.assign(q.begin() + static_cast<std::ptrdiff_t>(i * q_size),
                    q.begin() + static_cast<std::ptrdiff_t>((i + 1) * q_size));
      ASSERT_TRUE(decode(test).has_value());
      const std::vector<float> expected(
          out.begin() + static_cast<std::ptrdiff_t>(i * out_size),
          out.begin() + static_cast<std::ptrdiff_t>((i + 1) * out_size));
      expect_close(test.out, expected, kClose);
    }
  }
}

}  // namespace
}  // namespace kvarto::test
