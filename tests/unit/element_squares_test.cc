// Running mean squares of written rows: by hand, through a cache, and by several writers at once.

#include "cache/element_squares.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "cache_models.h"
#include "kernels/dispatch.h"

namespace kvarto {
namespace {

void add(ElementSquares& squares, const std::vector<float>& rows, std::uint64_t count) {
  squares.add({std::as_bytes(std::span(rows)).data(), Element::kF32, count},
              kernel_table(Isa::kScalar));
}

// The mean square that a bound is computed with.
double mean_square(const ElementSquares& squares, std::size_t element) {
  return double{squares.view().peaks[element]} / double{squares.view().weight};
}

TEST(ElementSquares, OfEqualRowsAreTheSquares) {
  for (const int count : {1, 2, 31, 32, 33, 1000}) {
    ElementSquares squares(1, 2);
    for (int i = 0; i < count; ++i) add(squares, {3.0f, -0.5f}, 1);
    EXPECT_NEAR(mean_square(squares, 0), 9.0, 9e-5) << count;
    EXPECT_NEAR(mean_square(squares, 1), 0.25, 2.5e-6) << count;
  }
}

TEST(ElementSquares, OfNormalRowsStayNearOne) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> rows(20000 * 8);
  for (float& x : rows) x = normal(random);
  ElementSquares squares(2, 4);
  add(squares, rows, 20000);
  // The standard deviation of the fading mean is sqrt(2 / (2 x 32 - 1)) = 0.18; the largest of
  // 20,000 / 32 nearly independent ones lies 3 to 6 of them above 1.
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_GT(mean_square(squares, i), 1.4);
    EXPECT_LT(mean_square(squares, i), 2.2);
  }
}

TEST(ElementSquares, AreTheSameRowByRowAndAllAtOnce) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> rows(50 * 300);
  for (float& x : rows) x = normal(random);
  ElementSquares whole(1, 300);
  ElementSquares single(1, 300);
  add(whole, rows, 50);
  for (std::size_t row = 0; row < 50; ++row) {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row * 300);
    add(single, std::vector<float>(begin, begin + 300), 1);
  }
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(whole.view().peaks[i], single.view().peaks[i]);
}

TEST(ElementSquares, BoundASingleElementAndNeverForgetIt) {
  ElementSquares squares(1, 1);
  const std::vector<float> small(5000, 0.5f);
  add(squares, small, 5000);
  add(squares, {100.0f}, 1);
  add(squares, small, 5000);
  const SquaresView view = squares.view();
  EXPECT_GE(static_cast<double>(view.max_rows) * mean_square(squares, 0), 100.0 * 100.0);
}

TEST(ElementSquares, KeepNotANumberAndInfinity) {
  for (const float bad : {NAN, INFINITY, -INFINITY, 1e30f}) {
    ElementSquares squares(1, 1);
    add(squares, {1.0f}, 1);
    add(squares, {bad}, 1);
    add(squares, std::vector<float>(1000, 1.0f), 1000);
    EXPECT_FALSE(std::isfinite(squares.view().peaks[0])) << bad;
  }
}

TEST(ElementSquares, LoseNoPeakOfConcurrentWriters) {
  ElementSquares squares(1, 64);
  const auto write = [&](float value) {
    const std::vector<float> rows(64 * 50, value);
    for (int i = 0; i < 200; ++i) add(squares, rows, 50);
  };
  std::thread other(write, 1.0f);
  write(5.0f);
  other.join();
  // 50 equal rows bring the mean to at least 1 - (1 - 1/32)^50 = 0.796 of their square.
  for (std::size_t i = 0; i < 64; ++i) EXPECT_GE(mean_square(squares, i), 0.79 * 25);
}

TEST(KvCache, KeepsSquaresOfWrittenRowsOnlyWhereAsked) {
  CacheOptions options;
  options.context = 64;
  for (const bool is_asked : {false, true}) {
    options.keeps_squares = is_asked;
    for (const Codec codec : {Codec::kF16, Codec::kBF16}) {
      auto cache = KvCache::create(dense_model(2, 8, codec), options);
      ASSERT_TRUE(cache);
      const SequenceId sequence = *cache->create_sequence();
      const StreamId k = *cache->find_stream(0, "k");
      ASSERT_EQ(*cache->append(sequence, 2), Grant::kDone);
      std::vector<float> rows(2 * 16);
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 16);
      ASSERT_TRUE(cache->write(sequence, k, 0, source_of(rows)));
      const SquaresView view = cache->stream_view(k)->squares;
      if (!is_asked || codec != Codec::kF16) {
        EXPECT_EQ(view.peaks, nullptr);
        continue;
      }
      ASSERT_NE(view.peaks, nullptr);
      for (std::size_t i = 0; i < 16; ++i) {
        const double square = static_cast<double>(i * i);
        EXPECT_NEAR(double{view.peaks[i]} / double{view.weight}, square, 1e-5 * square);
      }
      // Whoever may write without telling makes them unknown.
      ASSERT_NE(cache->writable_base(k), nullptr);
      EXPECT_EQ(cache->stream_view(k)->squares.peaks[0], INFINITY);
    }
  }
}

TEST(KvCache, CountsTheSquaresAsMetadata) {
  CacheOptions options;
  options.context = 64;
  const auto without = KvCache::create(dense_model(2, 8, Codec::kF16, 3), options);
  options.keeps_squares = true;
  const auto with = KvCache::create(dense_model(2, 8, Codec::kF16, 3), options);
  ASSERT_TRUE(without && with);
  // K and V, 3 layers, 16 elements, a mean and a peak of 4 bytes.
  constexpr std::uint64_t kBytes = 2 * 3 * 16 * 2 * 4;
  EXPECT_EQ(with->allocated_bytes(), without->allocated_bytes() + kBytes);
  EXPECT_EQ(with->usage()[0].metadata_bytes, without->usage()[0].metadata_bytes + kBytes);
}

}  // namespace
}  // namespace kvarto
