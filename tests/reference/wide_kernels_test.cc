// The kernels for many queries of every instruction set, and those in half precision, against
// attention in double precision over the rows as stored.

#include "kernels/wide_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/dispatch.h"
#include "reference/tolerance.h"

namespace kvarto::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct WideCase {
  std::uint32_t num_queries = 32;
  std::uint32_t qk_dim = 64;
  std::uint32_t v_dim = 64;
  Element element = Element::kF16;
  bool is_tiled = false;   // keys in tiles of 16 rows
  bool is_latent = false;  // keys and values are the same rows, and stay rows
  float key_scale = 1;
  bool has_outliers = false;
  bool prefetches = true;  // rows of the next chunk, while it scores rows
  std::uint64_t seed = 1;
  // Rows of each chunk that count.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> chunks = {{0, 64}, {5, 64}, {0, 17}};
};

// Rows as stored, with NaN around all that may be read but does not count.
struct Stored {
  std::vector<std::byte> bytes;
  std::vector<std::uint64_t> offsets;
};

std::uint32_t round_up(std::uint32_t n, std::uint32_t unit) { return (n + unit - 1) / unit * unit; }

class WideRun {
 public:
  WideRun(const KernelTable& table, const WideCase& test, bool is_half)
      : table_(table), wide_(*table.wide), test_(test), is_half_(is_half), random_(test.seed) {
    num_padded_ = round_up(test.num_queries, kWideQueries);
    acc_stride_ = round_up(test.v_dim, kWideElements);
    std::normal_distribution<float> normal;
    q_.resize(std::size_t{test.num_queries} * test.qk_dim);
    for (float& x : q_) x = normal(random_);
    acc_.assign(std::size_t{num_padded_} * acc_stride_, 0.0f);
    sum_.assign(std::size_t{num_padded_} * kPadFloats, 0.0f);
    maximum_.assign(num_padded_, -std::numeric_limits<float>::infinity());
    correction_.assign(num_padded_, 1.0f);
    share_.assign(num_padded_, 1.0f);
    scores_.assign(std::size_t{num_padded_} * kChunkRows, kNaN);
    pack();
  }

  void run() {
    for (const auto& [first, end] : test_.chunks) run_chunk(first, end);
    compare_outputs();
  }

 private:
  [[nodiscard]] std::size_t element_bytes() const { return test_.element == Element::kF32 ? 4 : 2; }

  void pack() {
    std::vector<const float*> rows;
    for (std::uint32_t g = 0; g < test_.num_queries; ++g) {
      rows.push_back(q_.data() + std::size_t{g} * test_.qk_dim);
    }
    scale_ = 0.3 / std::sqrt(static_cast<double>(test_.qk_dim));
    const std::uint32_t stride = round_up(test_.qk_dim, kWideElements);
    packed_.assign(std::size_t{num_padded_} * stride, kNaN);
    if (test_.is_latent) {
      wide_.pack_row_queries({rows.data(), test_.num_queries, test_.qk_dim, stride,
                              static_cast<float>(scale_), packed_.data()});
      return;
    }
    wide_.pack_queries(
        {rows.data(), test_.num_queries, test_.qk_dim, static_cast<float>(scale_), packed_.data()});
  }

  // Random rows through the element format: what is stored, and its exact values.
  std::vector<double> draw_rows(std::uint32_t dim, float scale, std::vector<std::byte>& bytes) {
    std::normal_distribution<float> normal;
    std::vector<float> rows(std::size_t{kChunkRows} * dim);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = scale * normal(random_) + (test_.has_outliers && i % dim % 11 == 3 ? 100.0f : 0);
    }
    bytes.resize(rows.size() * element_bytes());
    const auto e = static_cast<std::size_t>(test_.element);
    table_.from_f32[e](rows.data(), bytes.data(), rows.size());
    table_.to_f32[e](bytes.data(), rows.data(), rows.size());
    return {rows.begin(), rows.end()};
  }

  // Rows [first, end) at places in disorder; the others are NaN.
  Stored place_rows(const std::vector<std::byte>& rows, std::uint32_t dim, std::uint32_t first,
                    std::uint32_t end) {
    Stored stored;
    const std::size_t row_bytes = dim * element_bytes();
    stored.bytes.assign((kChunkRows + 1) * row_bytes + 64, std::byte{0xff});
    for (std::uint64_t row = 0; row < kChunkRows; ++row) {
      stored.offsets.push_back((row * 29 + 7) % kChunkRows * row_bytes);
      if (row < first || row >= end) continue;
      std::memcpy(stored.bytes.data() + stored.offsets[row], rows.data() + row * row_bytes,
                  row_bytes);
    }
    return stored;
  }

  Stored place_tiles(const std::vector<std::byte>& rows, std::uint32_t first, std::uint32_t end) {
    Stored stored;
    const std::size_t bytes = element_bytes();
    const std::size_t tile_bytes = kKeyTileRows * test_.qk_dim * bytes;
    stored.bytes.assign(kChunkRows * test_.qk_dim * bytes, std::byte{0xff});
    for (std::uint64_t tile = 0; tile < kChunkRows / kKeyTileRows; ++tile) {
      stored.offsets.push_back((3 - tile) * tile_bytes);
    }
    for (std::uint32_t row = first; row < end; ++row) {
      for (std::uint32_t d = 0; d < test_.qk_dim; ++d) {
        std::memcpy(stored.bytes.data() + stored.offsets[row / kKeyTileRows] +
                        (std::size_t{d} * kKeyTileRows + row % kKeyTileRows) * bytes,
                    rows.data() + (std::size_t{row} * test_.qk_dim + d) * bytes, bytes);
      }
    }
    return stored;
  }

  void run_chunk(std::uint32_t first, std::uint32_t end) {
    std::vector<std::byte> key_bytes;
    const std::vector<double> keys = draw_rows(test_.qk_dim, test_.key_scale, key_bytes);
    test_.is_latent ? score_rows(first, end, key_bytes) : score_tiles(first, end, key_bytes);
    compare_scores(keys, first, end);
    soften(first, end);
    accumulate(first, end, keys, key_bytes);
  }

  void score_tiles(std::uint32_t first, std::uint32_t end,
                   const std::vector<std::byte>& key_bytes) {
    const auto e = static_cast<std::size_t>(test_.element);
    const Stored stored_keys = test_.is_tiled ? place_tiles(key_bytes, first, end)
                                              : place_rows(key_bytes, test_.qk_dim, first, end);
    std::vector<std::byte> tiles(kChunkRows * test_.qk_dim * sizeof(float), std::byte{0xff});
    WideKeysArgs fill;
    fill.from = stored_keys.bytes.data();
    fill.offsets = stored_keys.offsets.data();
    fill.count = test_.is_tiled ? round_up(end, kKeyTileRows) / kKeyTileRows : end;
    fill.dim = test_.qk_dim;
    fill.to = tiles.data();
    (test_.is_tiled ? wide_.fill_key_tiles : wide_.fill_key_rows)[e](fill);

    WideScoreArgs score;
    score.keys = tiles.data();
    score.q = packed_.data();
    score.scores = scores_.data();
    score.num_blocks = num_padded_ / kWideQueries;
    score.num_tiles = round_up(end, wide_.tile_rows) / wide_.tile_rows;
    score.dim = test_.qk_dim;
    score.next = {stored_keys.bytes.data(), stored_keys.offsets.data(), fill.count, 70};
    wide_.score(score);
  }

  // Rows in the compute format where they lie, others from a copy.
  void score_rows(std::uint32_t first, std::uint32_t end, const std::vector<std::byte>& key_bytes) {
    const Stored stored = place_rows(key_bytes, test_.qk_dim, first, end);
    const Stored copy = copy_rows(stored, first, end);
    const bool is_in_place =
        wide_.element_bytes == element_bytes() && (test_.element != Element::kBF16 || !is_half_);
    const Stored& rows = is_in_place ? stored : copy;
    WideRowScoreArgs score;
    score.rows = rows.bytes.data();
    score.offsets = rows.offsets.data();
    score.first_row = first;
    score.end_row = end;
    score.q = packed_.data();
    score.q_stride = round_up(test_.qk_dim, kWideElements);
    score.dim = test_.qk_dim;
    score.scores = scores_.data();
    score.num_blocks = num_padded_ / kWideQueries;
    if (test_.prefetches) score.next = {stored.bytes.data(), stored.offsets.data(), end, 70};
    wide_.score_rows(score);
  }

  // Rows in the compute format.
  Stored copy_rows(const Stored& stored, std::uint32_t first, std::uint32_t end) {
    const std::uint32_t stride = round_up(test_.qk_dim, kWideElements);
    const std::uint64_t row_bytes = std::uint64_t{stride} * wide_.element_bytes;
    Stored copy;
    copy.bytes.assign(kChunkRows * row_bytes, std::byte{0xff});
    for (std::uint64_t row = 0; row < kChunkRows; ++row) copy.offsets.push_back(row * row_bytes);
    wide_.fill_values[static_cast<std::size_t>(test_.element)](
        {stored.bytes.data(), stored.offsets.data(), first, end, test_.qk_dim, stride,
         copy.bytes.data()});
    return copy;
  }

  void soften(std::uint32_t first, std::uint32_t end) {
    SoftmaxArgs softmax;
    softmax.scores = scores_.data();
    softmax.num_queries = num_padded_;
    softmax.first_row = first;
    softmax.end_row = end;
    softmax.maximum = maximum_.data();
    softmax.correction = correction_.data();
    softmax.sum = sum_.data();
    softmax.share = share_.data();
    wide_.softmax(softmax);
  }

  void accumulate(std::uint32_t first, std::uint32_t end, const std::vector<double>& keys,
                  const std::vector<std::byte>& key_bytes) {
    const std::uint32_t source_dim = test_.is_latent ? test_.qk_dim : test_.v_dim;
    std::vector<std::byte> value_bytes;
    std::vector<double> values = keys;
    if (!test_.is_latent) values = draw_rows(test_.v_dim, 1, value_bytes);
    const Stored stored =
        place_rows(test_.is_latent ? key_bytes : value_bytes, source_dim, first, end);
    const std::uint32_t stride = round_up(source_dim, kWideElements);
    std::vector<std::byte> rows(std::size_t{kChunkRows} * stride * wide_.element_bytes,
                                std::byte{0xff});
    WideValuesArgs fill;
    fill.from = stored.bytes.data();
    fill.offsets = stored.offsets.data();
    fill.first_row = first;
    fill.end_row = end;
    fill.dim = source_dim;
    fill.stride = stride;
    fill.to = rows.data();
    wide_.fill_values[static_cast<std::size_t>(test_.element)](fill);

    std::vector<std::uint64_t> offsets(kChunkRows);
    for (std::uint64_t row = 0; row < kChunkRows; ++row) {
      offsets[row] = row * stride * wide_.element_bytes;
    }
    WideAccumulateArgs args;
    args.v = rows.data();
    args.offsets = offsets.data();
    args.p = scores_.data();
    args.correction = correction_.data();
    args.share = share_.data();
    args.acc = acc_.data();
    args.num_blocks = num_padded_ / kWideQueries;
    args.first_row = first;
    args.end_row = end;
    args.dim = test_.v_dim;
    args.acc_stride = acc_stride_;
    args.next = {stored.bytes.data(), stored.offsets.data(), end, 70};
    wide_.accumulate(args);
    for (std::uint32_t row = first; row < end; ++row) {
      for (std::uint32_t d = 0; d < test_.v_dim; ++d) {
        values_.push_back(values[std::size_t{row} * source_dim + d]);
        largest_value_ = std::max(largest_value_, std::fabs(values_.back()));
      }
    }
  }

  void compare_scores(const std::vector<double>& keys, std::uint32_t first, std::uint32_t end) {
    for (std::uint32_t g = 0; g < test_.num_queries; ++g) {
      for (std::uint32_t row = first; row < end; ++row) {
        double exact = 0;
        ErrorTerms terms;
        terms.dim = test_.qk_dim;
        terms.is_half = is_half_;
        for (std::uint32_t d = 0; d < test_.qk_dim; ++d) {
          const double product = scale_ * double{q_[std::size_t{g} * test_.qk_dim + d]} *
                                 keys[std::size_t{row} * test_.qk_dim + d];
          exact += product;
          terms.largest_dot += std::fabs(product);
          terms.largest_square += product * product;
        }
        const double found = scores_[std::size_t{g} * kChunkRows + row];
        // In half precision queries below 2^-14 have an absolute error.
        const double tolerance = half_score_error(terms) + score_error(terms) + 1e-30 +
                                 (is_half_ ? 0x1p-22 * static_cast<double>(test_.qk_dim) : 0);
        ASSERT_NEAR(found, exact, tolerance) << "query " << g << " row " << row;
        exact_scores_.push_back(exact);
        largest_error_ = std::max(largest_error_, output_tolerance(terms));
      }
    }
    num_rows_.push_back(end - first);
  }

  void compare_outputs() {
    for (std::uint32_t g = 0; g < test_.num_queries; ++g) {
      std::vector<double> weights;
      std::size_t at = 0;
      for (const std::uint32_t rows : num_rows_) {
        for (std::uint32_t row = 0; row < rows; ++row) {
          weights.push_back(exact_scores_[at + std::size_t{g} * rows + row]);
        }
        at += std::size_t{rows} * test_.num_queries;
      }
      const double largest = *std::max_element(weights.begin(), weights.end());
      double total = 0;
      for (double& weight : weights) total += weight = std::exp2(weight - largest);
      double sum = 0;
      for (std::uint32_t i = 0; i < kPadFloats; ++i) sum += sum_[std::size_t{g} * kPadFloats + i];
      for (std::uint32_t d = 0; d < test_.v_dim; ++d) {
        double exact = 0;
        for (std::size_t row = 0; row < weights.size(); ++row) {
          exact += weights[row] * values_[row * test_.v_dim + d];
        }
        const double found = acc_[std::size_t{g} * acc_stride_ + d] / sum;
        ASSERT_NEAR(found, exact / total, largest_error_ * largest_value_)
            << "query " << g << " element " << d;
      }
    }
  }

  const KernelTable& table_;
  const WideKernels& wide_;
  WideCase test_;
  bool is_half_;
  std::mt19937_64 random_;
  std::uint32_t num_padded_ = 0;
  std::uint32_t acc_stride_ = 0;
  double scale_ = 1;
  std::vector<float> q_, packed_, acc_, sum_, maximum_, correction_, share_, scores_;
  std::vector<double> exact_scores_;     // chunk after chunk, [query][row]
  std::vector<double> values_;           // [row][v_dim]
  std::vector<std::uint32_t> num_rows_;  // of each chunk
  double largest_value_ = 0;
  double largest_error_ = 0;
};

// Index of an instruction set; behind them half precision.
class WideKernelsOf : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    is_half_ = GetParam() == "avx512fp16";
    if (is_half_) {
      if (supported_isas().back() != Isa::kAvx512) GTEST_SKIP() << "no AVX-512";
      const auto half = half_kernels(kernel_table(Isa::kAvx512));
      if (!half.has_value()) GTEST_SKIP() << half.error().message;
      table_ = *half;
      return;
    }
    for (const Isa isa : supported_isas()) {
      if (isa_name(isa) == GetParam()) table_ = &kernel_table(isa);
    }
    if (table_ == nullptr) GTEST_SKIP() << "not supported here";
  }
  void run(const WideCase& test) { WideRun(*table_, test, is_half_).run(); }

  const KernelTable* table_ = nullptr;
  bool is_half_ = false;
};

TEST_P(WideKernelsOf, MatchTheReferenceForEveryElementAndOrder) {
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    for (const bool is_tiled : {false, true}) {
      WideCase test;
      test.element = element;
      test.is_tiled = is_tiled;
      run(test);
    }
  }
}

TEST_P(WideKernelsOf, MatchTheReferenceForEveryNumberOfQueries) {
  for (const std::uint32_t queries : {1u, 2u, 7u, 8u, 9u, 16u, 23u, 64u, 127u, 128u}) {
    WideCase test;
    test.num_queries = queries;
    test.qk_dim = 40;
    test.v_dim = 50;
    run(test);
  }
}

TEST_P(WideKernelsOf, MatchTheReferenceForLatentRows) {
  constexpr std::pair<std::uint32_t, std::uint32_t> kWidths[] = {{576, 512}, {320, 256}, {288, 256},
                                                                 {512, 512}, {80, 72},   {19, 7}};
  for (const auto& [qk_dim, v_dim] : kWidths) {
    for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
      WideCase test;
      test.num_queries = 16;
      test.qk_dim = qk_dim;
      test.v_dim = v_dim;
      test.element = element;
      test.is_latent = true;
      run(test);
    }
  }
}

TEST_P(WideKernelsOf, MatchTheReferenceForLatentRowsOfEveryNumberOfQueries) {
  for (const std::uint32_t queries : {1u, 8u, 9u, 24u, 40u, 128u}) {
    WideCase test;
    test.num_queries = queries;
    test.qk_dim = 72;
    test.v_dim = 64;
    test.is_latent = true;
    test.prefetches = queries != 24;
    run(test);
  }
}

TEST_P(WideKernelsOf, MatchTheReferenceForEveryNumberOfRows) {
  for (std::uint32_t end = 1; end <= kChunkRows; ++end) {
    WideCase test;
    test.is_latent = end % 3 == 0;
    test.num_queries = 9;
    test.qk_dim = 33;
    test.v_dim = 31;
    test.is_tiled = end % 2 == 0;
    test.chunks = {{0, end}, {end - 1, end}, {end / 2, end}};
    run(test);
  }
}

TEST_P(WideKernelsOf, MatchTheReferenceOnRandomShapes) {
  std::mt19937_64 random(20261130);
  const auto pick = [&](std::uint32_t low, std::uint32_t high) {
    return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
  };
  for (int i = 0; i < 40; ++i) {
    WideCase test;
    test.num_queries = pick(1, 48);
    test.qk_dim = pick(1, 300);
    test.v_dim = pick(1, 300);
    test.element = static_cast<Element>(pick(0, 2));
    test.is_tiled = pick(0, 1) == 1;
    test.is_latent = pick(0, 2) == 0;
    if (test.is_latent) test.v_dim = pick(1, test.qk_dim);
    test.chunks.clear();
    for (std::uint32_t n = pick(1, 4); n > 0; --n) {
      const std::uint32_t end = pick(1, kChunkRows);
      test.chunks.push_back({pick(0, end - 1), end});
    }
    test.seed = static_cast<std::uint64_t>(i);
    run(test);
  }
}

TEST_P(WideKernelsOf, KeepToTheBoundOnKeysWithLargeChannels) {
  for (const std::uint32_t dim : {64u, 100u, 576u}) {
    WideCase test;
    test.has_outliers = true;
    test.qk_dim = dim;
    run(test);
    test.is_latent = true;
    run(test);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, WideKernelsOf,
                         testing::Values("scalar", "avx2", "avx512", "avx512fp16"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace kvarto::test
