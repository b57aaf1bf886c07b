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

std::size_t operand_bytes(const CodeKernels& kernels, const CodeCase& shape) {
  return std::size_t{kernels.has_paired_operands ? 2 : shape.parts} * kChunkRows;
}

struct Operands {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
  std::vector<std::int32_t> zeros;
};

// The operand of one row, where QuantiseArgs and CodeKernels put it.
int operand_at(const CodeKernels& kernels, const CodeCase& shape, const Operands& operands,
               std::size_t pair, std::uint32_t row) {
  const std::int8_t* begin = &operands.codes[pair * operand_bytes(kernels, shape)];
  const std::size_t word = row % 16 / 4 * 4 + row / 16;
  if (kernels.has_paired_operands) {
    std::int16_t x = 0;
    std::memcpy(&x, begin + row % 2 * kChunkRows + word * 4 + row % 4 / 2 * 2, sizeof x);
    return x;
  }
  const std::size_t place = word * 4 + row % 4;
  return begin[place] + (shape.parts == 2 ? 256 * begin[kChunkRows + place] : 0);
}

Operands quantise(const CodeKernels& kernels, const CodeCase& shape, const Rows& rows,
                  const std::vector<float>& p, std::uint32_t first_row, std::uint32_t end_row) {
  const std::uint32_t tile = 1u << shape.tile;
  const std::size_t num_pairs = std::size_t{tile} * rows.num_groups;
  Operands out;
  out.codes.assign(num_pairs * operand_bytes(kernels, shape), 77);
  out.scales.resize(num_pairs);
  out.zeros.resize(num_pairs);
  QuantiseArgs args;
  args.p = p.data();
  args.row_scales = rows.scales.data();
  args.num_queries = tile;
  args.num_groups = rows.num_groups;
  args.first_row = first_row;
  args.end_row = end_row;
  args.parts = shape.parts;
  args.zero_point = rows.zero_point();
  args.codes = out.codes.data();
  args.scales = out.scales.data();
  args.zeros = out.zeros.data();
  kernels.quantise(args);
  return out;
}

// Probabilities, with NaN where no kernel may look.
std::vector<float> probabilities(std::uint32_t tile, std::uint32_t first_row, std::uint32_t end_row,
                                 std::mt19937_64& random) {
  std::vector<float> p(std::size_t{tile} * kChunkRows, kNaN);
  for (std::uint32_t i = 0; i < tile; ++i) {
    for (std::uint32_t row = first_row; row < end_row; ++row) {
      p[i * kChunkRows + row] = std::exp2(-std::uniform_real_distribution<float>(0, 20)(random));
    }
  }
  return p;
}

struct Range {
  std::uint32_t first;
  std::uint32_t end;
};
constexpr Range kRanges[] = {{0, 64}, {5, 6}, {0, 17}, {15, 64}, {20, 50}};

TEST_P(CodeKernel, OperandsAreProbabilitiesTimesScalesUpToHalfAUnit) {
  std::mt19937_64 random(8);
  for (const CodeCase& shape : cases()) {
    if (shape.dim > 144) continue;
    const Rows rows(shape, shape.dim + 1);
    for (const Range range : kRanges) {
      const std::uint32_t tile = 1u << shape.tile;
      const std::vector<float> p = probabilities(tile, range.first, range.end, random);
      const Operands found = quantise(kernels, shape, rows, p, range.first, range.end);
      for (std::size_t pair = 0; pair < found.scales.size(); ++pair) {
        const double unit = double{found.scales[pair]};
        std::int64_t sum = 0;
        double largest = 0;
        for (std::uint32_t row = 0; row < kChunkRows; ++row) {
          const int x = operand_at(kernels, shape, found, pair, row);
          sum += x;
          const bool is_inside = row >= range.first && row < range.end;
          const std::size_t query = pair % tile;
          const std::size_t group = pair / tile;
          const double weight = is_inside ? double{p[query * kChunkRows + row]} *
                                                double{rows.scales[group * kChunkRows + row]}
                                          : 0.0;
          largest = std::max(largest, std::fabs(weight));
          if (!is_inside) {
            ASSERT_EQ(x, 0) << describe(shape) << ", row " << row;
          }
          ASSERT_NEAR(x * unit, weight, unit * 0.51) << describe(shape) << ", row " << row;
        }
        EXPECT_EQ(found.zeros[pair], -rows.zero_point() * sum);
        EXPECT_NEAR(unit * operand_max(shape.parts), largest, largest * 1e-6);
      }
    }
  }
}

TEST_P(CodeKernel, AccumulationIsExactInTheOperands) {
  std::mt19937_64 random(9);
  for (const CodeCase& shape : cases()) {
    const Rows rows(shape, shape.dim + 2);
    const std::uint32_t tile = 1u << shape.tile;
    for (const Range range : {kRanges[0], kRanges[2], kRanges[4]}) {
      const std::vector<float> p = probabilities(tile, range.first, range.end, random);
      const Operands operands = quantise(kernels, shape, rows, p, range.first, range.end);
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
        kernels.accumulate[shape.bits == 8 ? 0 : 1][shape.parts - 1][shape.tile](args);
      }
      for (std::uint32_t i = 0; i < tile; ++i) {
        for (std::uint32_t d = 0; d < shape.dim; ++d) {
          const std::size_t pair = std::size_t{d / shape.group} * tile + i;
          std::int64_t sum = 0;
          for (std::uint32_t row = 0; row < kChunkRows; ++row) {
            const int x = operand_at(kernels, shape, operands, pair, row);
            sum += x * (static_cast<int>(rows.codes[row * shape.dim + d]) - rows.zero_point());
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
  const CodeCase shape{8, 2, 0, 32, 32, true};
  Rows rows(shape, 4);
  rows.scales[9] = kNaN;
  std::vector<float> p(kChunkRows, 0.5f);
  const Operands operands = quantise(kernels, shape, rows, p, 0, kChunkRows);
  EXPECT_TRUE(std::isnan(operands.scales[0]));
  const Operands others = quantise(kernels, shape, rows, p, 10, kChunkRows);
  EXPECT_FALSE(std::isnan(others.scales[0]));
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, CodeKernel,
                         testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

}  // namespace
}  // namespace kvarto::test
