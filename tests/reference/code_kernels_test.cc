// The kernels over integer codes of every instruction set, against sums in double precision of the
// same codes, laid out here by the formulas of their header.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/dispatch.h"

namespace kvarto::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct CodeCase {
  int bits = 8;
  std::uint32_t parts = 2;
  int tile = 3;  // of 1 << tile queries
  std::uint32_t dim = 64;
  std::uint32_t group = 64;
  bool is_f16 = false;
};

// 64 rows of random codes and scales, as tiles of keys and of values.
class Rows {
 public:
  Rows(const CodeCase& shape, std::uint64_t seed) : shape_(shape), random_(seed) {
    num_groups = (shape.dim + shape.group - 1) / shape.group;
    const std::uint32_t limit = shape.bits == 8 ? 255 : 15;
    codes.resize(std::size_t{kChunkRows} * shape.dim);
    for (std::uint32_t& code : codes) {
      code = std::uniform_int_distribution<std::uint32_t>(0, limit)(random_);
    }
    scales.resize(std::size_t{num_groups} * kChunkRows);
    for (float& scale : scales) {
      // Exact in binary16; 4-bit ggml formats have negative scales.
      const int steps = std::uniform_int_distribution<int>(-1000, 1000)(random_);
      scale = static_cast<float>(steps) / 1024.0f;
    }
    tile_bytes = std::size_t{kKeyTileRows} * shape.dim * static_cast<std::size_t>(shape.bits) / 8;
    for (std::uint64_t t = 0; t < 4; ++t) offsets[t] = (3 - t) * tile_bytes;
    k.resize(4 * tile_bytes);
    v.resize(4 * tile_bytes);
    for (std::uint32_t row = 0; row < kChunkRows; ++row) {
      for (std::uint32_t d = 0; d < shape.dim; ++d) store(row, d);
    }
  }

  [[nodiscard]] int zero_point() const { return shape_.bits == 8 ? 128 : 8; }
  [[nodiscard]] double value(std::uint32_t row, std::uint32_t d) const {
    const int code = static_cast<int>(codes[row * shape_.dim + d]) - zero_point();
    return code * double{scales[d / shape_.group * kChunkRows + row]};
  }

  std::uint32_t num_groups = 0;
  std::size_t tile_bytes = 0;
  std::vector<std::uint32_t> codes;  // [row][dim]
  std::vector<float> scales;         // [group][row]
  std::uint64_t offsets[4] = {};
  std::vector<std::byte> k;
  std::vector<std::byte> v;

 private:
  void store(std::uint32_t row, std::uint32_t d) {
    const auto code = static_cast<std::byte>(codes[row * shape_.dim + d]);
    std::byte* key_tile = &k[offsets[row / 16]];
    std::byte* value_tile = &v[offsets[row / 16]];
    const std::uint32_t r = row % 16;
    if (shape_.bits == 8) {
      key_tile[d / 4 * 64 + r * 4 + d % 4] = code;
      value_tile[d / 16 * 256 + r / 4 * 64 + d % 16 * 4 + r % 4] = code;
      return;
    }
    key_tile[d / 8 * 64 + r * 4 + d % 4] |= d % 8 < 4 ? code : code << 4;
    value_tile[d / 16 * 128 + r / 8 * 64 + d % 16 * 4 + r % 4] |= r % 8 < 4 ? code : code << 4;
  }

  CodeCase shape_;
  std::mt19937_64 random_;
};

class CodeKernel : public testing::TestWithParam<Isa> {
 protected:
  const CodeKernels& kernels = kernel_table(GetParam()).codes;

  static std::vector<CodeCase> cases() {
    std::vector<CodeCase> all;
    for (const int bits : {8, 4}) {
      for (const std::uint32_t parts : {1u, 2u}) {
        for (int tile = 0; tile < kNumQueryTiles; ++tile) {
          for (const std::uint32_t dim : {16u, 48u, 128u, 144u, 512u}) {
            all.push_back({bits, parts, tile, dim, bits == 8 ? dim : std::min(dim, 128u), false});
          }
          for (const std::uint32_t dim : {32u, 96u, 128u, 512u}) {
            all.push_back({bits, parts, tile, dim, 32, true});
          }
        }
      }
    }
    return all;
  }
};

std::string describe(const CodeCase& shape) {
  return std::to_string(shape.bits) + " bits, " + std::to_string(shape.parts) + " parts, tile " +
         std::to_string(shape.tile) + ", dim " + std::to_string(shape.dim) + ", group " +
         std::to_string(shape.group);
}

double operand_max(std::uint32_t parts) { return parts == 2 ? 32639 : 127; }

TEST_P(CodeKernel, ScoresAreTheSumsUpToTheRoundingOfQueries) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  for (const CodeCase& shape : cases()) {
    const Rows rows(shape, shape.dim);
    const std::uint32_t tile = 1u << shape.tile;
    std::vector<float> q(std::size_t{tile} * shape.dim);
    for (float& x : q) x = normal(random);
    q[shape.dim / 2] = 300;  // an outlier makes all units coarse
    std::vector<const float*> starts;
    for (std::uint32_t i = 0; i < tile; ++i) starts.push_back(&q[std::size_t{i} * shape.dim]);
    PackQueryCodesArgs pack;
    pack.rows = starts.data();
    pack.num_queries = tile;
    pack.tile = tile;
    pack.dim = shape.dim;
    pack.group_elements = shape.group;
    pack.parts = shape.parts;
    pack.zero_point = rows.zero_point();
    pack.scale = 0.25f;
    std::vector<std::int32_t> packed(std::size_t{tile} * shape.dim + 64);
    pack.out = packed.data();
    kernels.pack_queries(pack);
    for (const std::uint32_t count : {1u, 3u, 4u}) {
      std::vector<float> scores(std::size_t{tile} * kChunkRows, kNaN);
      CodeScoreArgs args;
      args.k = rows.k.data();
      args.offsets = rows.offsets;
      args.next_k = rows.k.data();
      args.next_offsets = rows.offsets;
      args.row_scales = rows.scales.data();
      args.q = packed.data();
      args.scores = scores.data();
      args.count = count;
      args.dim = shape.dim;
      args.group_elements = shape.group;
      kernels.score[shape.bits == 8 ? 0 : 1][shape.parts - 1][shape.tile](args);
      for (std::uint32_t i = 0; i < tile; ++i) {
        double largest = 0;
        for (std::uint32_t d = 0; d < shape.dim; ++d) {
          largest = std::max(largest, std::fabs(0.25 * double{starts[i][d]}));
        }
        for (std::uint32_t row = 0; row < count * 16; ++row) {
          double exact = 0;
          double magnitude = 0;
          for (std::uint32_t d = 0; d < shape.dim; ++d) {
            exact += 0.25 * double{starts[i][d]} * rows.value(row, d);
            magnitude += std::fabs(rows.value(row, d));
          }
          const double bound =
              magnitude * largest * (0.5 / operand_max(shape.parts) + std::ldexp(1.0, -20));
          ASSERT_NEAR(double{scores[i * kChunkRows + row]}, exact, bound)
              << describe(shape) << ", query " << i << ", row " << row;
        }
      }
    }
  }
}

struct Operands {
  std::vector<std::int8_t> codes;  // low and high bytes
  std::vector<float> scales;
  std::vector<std::int32_t> zeros;
  std::vector<float> maximum;
  std::vector<float> correction;
  std::vector<float> sum;
  bool is_paired = false;  // CodeKernels::has_paired_operands

  // Operand of a pair of group and query.
  [[nodiscard]] int at(std::size_t pair, std::uint32_t row) const {
    const std::int8_t* begin = &codes[pair * 2 * kChunkRows];
    const std::size_t word = row % 16 / 4 * 4 + row / 16;
    if (is_paired) {
      std::int16_t x = 0;
      std::memcpy(&x, begin + row % 2 * kChunkRows + word * 4 + row % 4 / 2 * 2, sizeof x);
      return x;
    }
    const std::size_t place = word * 4 + row % 4;
    return begin[place] + 256 * begin[kChunkRows + place];
  }
};

// Rows of a chunk that count.
struct Range {
  std::uint32_t first;
  std::uint32_t end;
};
constexpr Range kRanges[] = {{0, 64}, {5, 6}, {0, 17}, {15, 64}, {20, 50}};

// `before`: the running maximum.
Operands weigh(const CodeKernels& kernels, const Rows& rows, std::vector<float> scores, Range range,
               float before) {
  const std::size_t num_queries = scores.size() / kChunkRows;
  const std::size_t num_pairs = num_queries * rows.num_groups;
  Operands out;
  out.is_paired = kernels.has_paired_operands;
  out.codes.assign(num_pairs * 2 * kChunkRows, 77);
  out.scales.resize(num_pairs);
  out.zeros.resize(num_pairs);
  out.maximum.assign(num_queries, before);
  out.correction.resize(num_queries);
  out.sum.assign(num_queries * kPadFloats, 3.0f);
  SoftmaxArgs softmax;
  softmax.scores = scores.data();
  softmax.num_queries = static_cast<std::uint32_t>(num_queries);
  softmax.first_row = range.first;
  softmax.end_row = range.end;
  softmax.maximum = out.maximum.data();
  softmax.correction = out.correction.data();
  softmax.sum = out.sum.data();
  WeighArgs args;
  args.softmax = &softmax;
  args.row_scales = rows.scales.data();
  args.num_groups = rows.num_groups;
  args.zero_point = rows.zero_point();
  args.next_v = rows.v.data();
  args.next_offsets = rows.offsets;
  args.next_lines = 2;
  args.codes = out.codes.data();
  args.scales = out.scales.data();
  args.zeros = out.zeros.data();
  kernels.weigh(args);
  return out;
}

// Scores up to 20 octaves apart, with NaN where no kernel may look.
std::vector<float> random_scores(std::uint32_t num_queries, Range range, std::mt19937_64& random) {
  std::vector<float> scores(std::size_t{num_queries} * kChunkRows, kNaN);
  for (std::uint32_t i = 0; i < num_queries; ++i) {
    for (std::uint32_t row = range.first; row < range.end; ++row) {
      scores[i * kChunkRows + row] = std::uniform_real_distribution<float>(-10, 10)(random);
    }
  }
  return scores;
}

double largest_score(const std::vector<float>& scores, std::size_t query, Range range) {
  double largest = -HUGE_VAL;
  for (std::uint32_t row = range.first; row < range.end; ++row) {
    largest = std::max(largest, double{scores[query * kChunkRows + row]});
  }
  return largest;
}

double largest_scale(const Rows& rows, std::size_t group, Range range) {
  double largest = 0;
  for (std::uint32_t row = range.first; row < range.end; ++row) {
    largest = std::max(largest, std::fabs(double{rows.scales[group * kChunkRows + row]}));
  }
  return largest;
}

constexpr std::uint32_t kQueryCounts[] = {1, 2, 8, 11, 24};
constexpr float kNothingBefore = -std::numeric_limits<float>::infinity();

TEST_P(CodeKernel, OperandsAreProbabilitiesTimesScalesUpToHalfAUnit) {
  std::mt19937_64 random(8);
  for (const CodeCase& shape : cases()) {
    if (shape.dim > 144 || shape.parts != 1 || shape.tile != 0) continue;
    const Rows rows(shape, shape.dim + 1);
    for (const Range range : kRanges) {
      for (const std::uint32_t num_queries : kQueryCounts) {
        const std::vector<float> scores = random_scores(num_queries, range, random);
        const float before = num_queries == 2 ? kNothingBefore : 3.0f;
        const Operands found = weigh(kernels, rows, scores, range, before);
        for (std::size_t pair = 0; pair < found.scales.size(); ++pair) {
          const std::size_t query = pair % num_queries;
          const std::size_t group = pair / num_queries;
          const double largest = largest_score(scores, query, range);
          const double share = std::exp2(largest - std::max(largest, double{before}));
          const double unit = double{found.scales[pair]};
          ASSERT_NEAR(unit * kOperandMax16, share * largest_scale(rows, group, range),
                      share * largest_scale(rows, group, range) * 1e-6);
          std::int64_t sum = 0;
          for (std::uint32_t row = 0; row < kChunkRows; ++row) {
            const int x = found.at(pair, row);
            sum += x;
            if (row < range.first || row >= range.end) {
              ASSERT_EQ(x, 0) << describe(shape) << ", row " << row;
              continue;
            }
            const double p = share * std::exp2(double{scores[query * kChunkRows + row]} - largest);
            ASSERT_NEAR(x * unit, p * double{rows.scales[group * kChunkRows + row]}, unit * 0.51)
                << describe(shape) << ", row " << row;
          }
          EXPECT_EQ(found.zeros[pair], -rows.zero_point() * sum);
        }
      }
    }
  }
}

TEST_P(CodeKernel, WeighingKeepsTheStateOfASoftmax) {
  std::mt19937_64 random(11);
  const CodeCase shape{8, 1, 0, 32, 32, true};
  const Rows rows(shape, 5);
  for (const Range range : kRanges) {
    for (const float before : {kNothingBefore, -100.0f, 3.0f, 100.0f}) {
      const std::vector<float> scores = random_scores(9, range, random);
      const Operands found = weigh(kernels, rows, scores, range, before);
      for (std::size_t query = 0; query < 9; ++query) {
        const double largest = largest_score(scores, query, range);
        const double maximum = std::max(largest, double{before});
        EXPECT_EQ(double{found.maximum[query]}, maximum);
        // A difference of scores rounds once, at up to 2^-24 of itself; exp2 adds 2^-21.
        const double farthest = std::isinf(before) ? 20.0 : 20.0 + std::fabs(double{before});
        const double rounding = farthest * 0x1p-24 * std::log(2.0) + 0x1p-21;
        const double correction = std::exp2(double{before} - maximum);
        EXPECT_NEAR(double{found.correction[query]}, correction, correction * rounding);
        double exact = kPadFloats * 3.0 * correction;
        for (std::uint32_t row = range.first; row < range.end; ++row) {
          exact += std::exp2(double{scores[query * kChunkRows + row]} - maximum);
        }
        double sum = 0;
        for (std::uint32_t lane = 0; lane < kPadFloats; ++lane) {
          sum += double{found.sum[query * kPadFloats + lane]};
        }
        // Two factors, and some 64 additions and products of f32.
        EXPECT_NEAR(sum, exact, exact * (2 * rounding + 70 * 0x1p-24));
      }
    }
  }
}

TEST_P(CodeKernel, AccumulationIsExactInTheOperands) {
  std::mt19937_64 random(9);
  for (const CodeCase& shape : cases()) {
    if (shape.parts != 1) continue;
    const Rows rows(shape, shape.dim + 2);
    const std::uint32_t tile = 1u << shape.tile;
    for (const Range range : {kRanges[0], kRanges[2], kRanges[4]}) {
      const std::vector<float> scores = random_scores(tile, range, random);
      const Operands operands = weigh(kernels, rows, scores, range, 3.0f);
      std::vector<float> acc(std::size_t{tile} * shape.dim, 3.0f);
      std::vector<float> correction(tile, 0.5f);
      CodeAccumulateArgs args;
      args.v = rows.v.data();
      args.offsets = rows.offsets;
      args.next_v = rows.v.data();
      args.next_offsets = rows.offsets;
      args.codes = operands.codes.data();
      args.scales = operands.scales.data();
      args.zeros = operands.zeros.data();
      args.correction = correction.data();
      args.acc = acc.data();
      args.count = (range.end + 15) / 16;
      args.group_elements = shape.group;
      args.num_queries = tile;
      args.acc_stride = shape.dim;
      for (std::uint32_t d = 0; d < shape.dim; d += 64) {  // in parts, as several tiles do
        args.first_element = d;
        args.dim = std::min(64u, shape.dim - d);
        kernels.accumulate[shape.bits == 8 ? 0 : 1][shape.tile](args);
      }
      for (std::uint32_t i = 0; i < tile; ++i) {
        for (std::uint32_t d = 0; d < shape.dim; ++d) {
          const std::size_t pair = std::size_t{d / shape.group} * tile + i;
          std::int64_t sum = 0;
          for (std::uint32_t row = 0; row < kChunkRows; ++row) {
            const int code = static_cast<int>(rows.codes[row * shape.dim + d]) - rows.zero_point();
            sum += operands.at(pair, row) * code;
          }
          const double exact = 1.5 + static_cast<double>(sum) * double{operands.scales[pair]};
          ASSERT_NEAR(double{acc[i * shape.dim + d]}, exact, 1e-6 * (1.5 + std::fabs(exact)))
              << describe(shape) << ", query " << i << ", element " << d;
        }
      }
    }
  }
}

TEST_P(CodeKernel, FillsAreExact) {
  for (const CodeCase& shape : cases()) {
    if (shape.parts != 1 || shape.tile != 0) continue;
    const Rows rows(shape, shape.dim + 3);
    const std::uint32_t stride = shape.dim + 16;
    std::vector<float> keys(16 * std::size_t{shape.dim});
    std::vector<float> values(16 * std::size_t{stride});
    for (std::uint32_t t = 0; t < 4; ++t) {
      FillCodesArgs args;
      args.row_scales = rows.scales.data() + t * 16;
      args.dim = shape.dim;
      args.group_elements = shape.group;
      args.zero_point = rows.zero_point();
      args.stride = stride;
      args.codes = rows.k.data() + rows.offsets[t];
      args.out = keys.data();
      kernels.fill_keys[shape.bits == 8 ? 0 : 1](args);
      args.codes = rows.v.data() + rows.offsets[t];
      args.out = values.data();
      kernels.fill_values[shape.bits == 8 ? 0 : 1](args);
      for (std::uint32_t row = 0; row < 16; ++row) {
        for (std::uint32_t d = 0; d < shape.dim; ++d) {
          const auto exact = static_cast<float>(rows.value(t * 16 + row, d));
          ASSERT_EQ(keys[d * 16 + row], exact) << describe(shape);
          ASSERT_EQ(values[row * stride + d], exact) << describe(shape);
        }
      }
    }
  }
}

TEST_P(CodeKernel, LoadsScalesOfBothTypes) {
  constexpr std::uint32_t kGroups = 3;
  std::vector<float> expected(kGroups * kChunkRows);
  std::vector<std::byte> wide(2 * kGroups * 16 * 4);
  std::vector<std::byte> narrow(2 * kGroups * 16 * 2);
  for (std::uint32_t t = 0; t < 2; ++t) {
    for (std::uint32_t i = 0; i < kGroups * 16; ++i) {
      // 1 + i / 64: exact in binary16, whose bits are 0x3c00 + 16 i.
      const float x = 1 + static_cast<float>(t * 16 + i % 16) / 64;
      const auto half = static_cast<std::uint16_t>(0x3c00 + 16 * (t * 16 + i % 16));
      expected[i / 16 * kChunkRows + t * 16 + i % 16] = x;
      std::memcpy(&wide[(t * kGroups * 16 + i) * 4], &x, 4);
      std::memcpy(&narrow[(t * kGroups * 16 + i) * 2], &half, 2);
    }
  }
  for (const bool is_f16 : {false, true}) {
    const std::uint64_t bytes = kGroups * 16 * (is_f16 ? 2 : 4);
    const std::uint64_t offsets[] = {0, bytes};
    std::vector<float> found(kGroups * kChunkRows);
    LoadScalesArgs args;
    args.from = is_f16 ? narrow.data() : wide.data();
    args.offsets = offsets;
    args.next = args.from;
    args.next_offsets = offsets;
    args.count = 2;
    args.num_groups = kGroups;
    args.is_f16 = is_f16;
    args.out = found.data();
    kernels.load_scales(args);
    EXPECT_EQ(found, expected);
  }
}

TEST_P(CodeKernel, NanScalesReachTheResult) {
  const CodeCase shape{8, 1, 0, 32, 32, true};
  Rows rows(shape, 4);
  rows.scales[9] = kNaN;
  const std::vector<float> scores(kChunkRows, 0.5f);
  const Operands operands = weigh(kernels, rows, scores, {0, kChunkRows}, kNothingBefore);
  EXPECT_TRUE(std::isnan(operands.scales[0]));
  const Operands others = weigh(kernels, rows, scores, {10, kChunkRows}, kNothingBefore);
  EXPECT_FALSE(std::isnan(others.scales[0]));
}

TEST_P(CodeKernel, NanScoresReachTheSum) {
  const CodeCase shape{8, 1, 0, 32, 32, true};
  const Rows rows(shape, 4);
  std::vector<float> scores(2 * kChunkRows, 0.5f);
  scores[kChunkRows + 9] = kNaN;
  const Operands operands = weigh(kernels, rows, scores, {0, kChunkRows}, kNothingBefore);
  float sums[2] = {};
  for (std::size_t i = 0; i < 2 * kPadFloats; ++i) sums[i / kPadFloats] += operands.sum[i];
  EXPECT_FALSE(std::isnan(sums[0]));
  EXPECT_TRUE(std::isnan(sums[1]));
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, CodeKernel,
                         testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

}  // namespace
}  // namespace kvarto::test
