// Kernels of the forward pass, those of every instruction set, against double precision and against
// the numbers that the gguf package reads from blocks (tests/golden/make_weight_blocks.py).

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/forward_dispatch.h"

namespace kvarto {
namespace {

const std::map<std::string, WeightType> kTypes = {
    {"Q8_0", WeightType::kQ8_0}, {"Q5_0", WeightType::kQ5_0}, {"Q4_0", WeightType::kQ4_0},
    {"Q4_K", WeightType::kQ4K},  {"Q5_K", WeightType::kQ5K},  {"Q6_K", WeightType::kQ6K}};

struct Blocks {
  WeightType type{};
  std::vector<std::byte> bytes;
  std::vector<float> numbers;
};

std::vector<Blocks> golden_blocks() {
  std::ifstream file(std::string(KVARTO_SOURCE_DIR) + "/tests/golden/weight_blocks.txt");
  std::vector<Blocks> all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string type, hex;
    words >> type >> hex;
    Blocks blocks{.type = kTypes.at(type), .bytes = {}, .numbers = {}};
    for (std::size_t i = 0; i < hex.size(); i += 2) {
      blocks.bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    for (std::string number; words >> number;) blocks.numbers.push_back(std::stof(number));
    all.push_back(std::move(blocks));
  }
  return all;
}

class ForwardKernelsOf : public testing::TestWithParam<const ForwardKernels*> {
 protected:
  [[nodiscard]] const ForwardKernels& kernels() const { return *GetParam(); }
  std::mt19937 random_{20261130};
  std::normal_distribution<float> normal_{0.0f, 1.0f};

  [[nodiscard]] std::vector<float> draw(std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = normal_(random_);
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, ForwardKernelsOf, testing::ValuesIn(runnable_forward_kernels()),
                         [](const auto& param) { return std::string(param.param->isa); });

TEST_P(ForwardKernelsOf, WidenBlocksToTheNumbersOfTheirFormat) {
  const auto all = golden_blocks();
  ASSERT_EQ(all.size(), kTypes.size());
  for (const Blocks& blocks : all) {
    std::vector<float> found(blocks.numbers.size());
    kernels().widen[static_cast<int>(blocks.type)](blocks.bytes.data(), found.data(), found.size());
    float largest = 0;
    for (const float x : blocks.numbers) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < found.size(); ++i) {
      // d x scale and its product with the code are rounded, and so is the minimum.
      EXPECT_NEAR(found[i], blocks.numbers[i], 3 * 0x1p-24f * 2 * largest)
          << "type " << static_cast<int>(blocks.type) << ", element " << i;
    }
  }
}

// Random rows of a format: random bytes, with scales that are numbers.
std::vector<std::byte> random_rows(const Blocks& sample, std::size_t num_blocks,
                                   std::mt19937& random) {
  const std::size_t block_bytes = sample.bytes.size() / 2;
  std::vector<std::byte> rows(num_blocks * block_bytes);
  for (std::byte& byte : rows) byte = static_cast<std::byte>(random() & 255);
  const auto copy_scale = [&](std::size_t block, std::size_t at) {
    std::memcpy(rows.data() + block * block_bytes + at,
                sample.bytes.data() + (random() % 2) * block_bytes + at, 2);
  };
  for (std::size_t block = 0; block < num_blocks; ++block) {
    copy_scale(block, sample.type == WeightType::kQ6K ? 208 : 0);
    if (sample.type == WeightType::kQ4K || sample.type == WeightType::kQ5K) copy_scale(block, 2);
  }
  return rows;
}

struct Coded {
  std::vector<std::int16_t> codes;
  std::vector<float> scales;
  std::vector<float> sums;
};
Coded code(const ForwardKernels& kernels, const std::vector<float>& x, std::uint32_t group) {
  Coded coded{.codes = std::vector<std::int16_t>(x.size()),
              .scales = std::vector<float>(x.size() / group),
              .sums = std::vector<float>(x.size() / kSumRun)};
  kernels.code_activations({.x = x.data(),
                            .count = static_cast<std::uint32_t>(x.size()),
                            .group = group,
                            .codes = coded.codes.data(),
                            .scales = coded.scales.data(),
                            .sums = coded.sums.data()});
  return coded;
}

// As a product of this type takes them; empty where kernels take the codes themselves.
std::vector<std::byte> pack(const ForwardKernels& kernels, const Coded& coded, WeightType type) {
  if (kernels.pack_codes == nullptr) return {};
  const auto count = static_cast<std::uint32_t>(coded.codes.size());
  std::vector<std::byte> packed((count + kPackedCodes - 1) / kPackedCodes * kPackedBytes);
  kernels.pack_codes(
      {.codes = coded.codes.data(), .count = count, .type = type, .out = packed.data()});
  return packed;
}

TEST_P(ForwardKernelsOf, CodeActivationsWithinHalfAUnit) {
  for (const std::uint32_t group : {32u, 256u}) {
    auto x = draw(1024);
    x[5] = 300;  // an outlier takes the others' precision in its group alone
    std::fill(x.begin() + 512, x.begin() + 768, 0.0f);
    const Coded coded = code(kernels(), x, group);
    const int largest_code = group == 256 ? kMaxCode256 : kMaxCode32;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double unit = coded.scales[i / group];
      EXPECT_LE(std::abs(coded.codes[i]), largest_code);
      EXPECT_NEAR(coded.codes[i] * unit, x[i], 0.5001 * unit + 1e-30) << "element " << i;
    }
    for (std::size_t run = 0; group == 256 && run < coded.sums.size(); ++run) {
      double sum = 0;
      for (std::size_t i = run * 32; i < run * 32 + 32; ++i) {
        sum += static_cast<double>(coded.codes[i]) * coded.scales[i / group];
      }
      EXPECT_NEAR(coded.sums[run], sum, 1e-6 * std::abs(sum) + 1e-30);
    }
  }
}

TEST_P(ForwardKernelsOf, ActivationsThatAreNoNumbersStayNone) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    auto x = draw(256);
    x[200] = bad;
    EXPECT_TRUE(std::isnan(code(kernels(), x, 256).scales[0]));
    EXPECT_TRUE(std::isnan(code(kernels(), x, 32).scales[200 / 32]));
    EXPECT_FALSE(std::isnan(code(kernels(), x, 32).scales[0]));
  }
}

// Rows times activations, of one format, against double precision on the widened weights.
TEST_P(ForwardKernelsOf, MultiplyQuantisedRowsAsDoublePrecisionDoes) {
  for (const Blocks& sample : golden_blocks()) {
    const std::uint32_t block = weight_block(sample.type);
    for (const std::uint32_t num_rows : {1u, 3u, 16u, 37u}) {
      const std::uint32_t columns = block * (1 + num_rows % 4);
      const auto rows = random_rows(sample, std::size_t{num_rows} * (columns / block), random_);
      const auto x = draw(columns);
      const Coded coded = code(kernels(), x, block);
      const auto packed = pack(kernels(), coded, sample.type);
      std::vector<float> found(num_rows, NAN);
      const std::uint64_t row_bytes = columns / block * (sample.bytes.size() / 2);
      kernels().row_products[static_cast<int>(sample.type)]({.weights = rows.data(),
                                                             .row_bytes = row_bytes,
                                                             .num_rows = num_rows,
                                                             .columns = columns,
                                                             .x = x.data(),
                                                             .codes = coded.codes.data(),
                                                             .packed = packed.data(),
                                                             .scales = coded.scales.data(),
                                                             .sums = coded.sums.data(),
                                                             .out = found.data()});
      std::vector<float> weights(columns);
      for (std::uint32_t r = 0; r < num_rows; ++r) {
        forward_kernels(Isa::kScalar)
            .widen[static_cast<int>(sample.type)](rows.data() + r * row_bytes, weights.data(),
                                                  columns);
        double expected = 0;
        double bound = 0;  // half a unit of every activation, and f32 sums
        for (std::uint32_t c = 0; c < columns; ++c) {
          expected += double{weights[c]} * x[c];
          const double unit = coded.scales[c / block];
          bound += std::abs(weights[c]) * (0.5 * unit + 32 * 0x1p-24 * std::abs(x[c]));
        }
        // Codes and minima of the K types are summed apart and then subtracted.
        if (block == 256) bound *= 4;
        EXPECT_NEAR(found[r], expected, bound)
            << "type " << static_cast<int>(sample.type) << ", row " << r << " of " << num_rows;
      }
    }
  }
}

TEST_P(ForwardKernelsOf, LargestCodesDoNotOverflow) {
  for (const Blocks& sample : golden_blocks()) {
    const std::uint32_t block = weight_block(sample.type);
    const std::size_t block_bytes = sample.bytes.size() / 2;
    // All bits: the largest codes, or, of Q6_K and Q8_0, small negative ones; 0x80 the others.
    for (const int fill : {0xFF, 0x80, 0x00}) {
      std::vector<std::byte> row(block_bytes, static_cast<std::byte>(fill));
      const std::uint16_t one = 0x3C00;
      std::memcpy(row.data() + (sample.type == WeightType::kQ6K ? 208 : 0), &one, 2);
      if (sample.type == WeightType::kQ6K) std::fill_n(row.begin() + 192, 16, std::byte{0x80});
      if (sample.type == WeightType::kQ4K || sample.type == WeightType::kQ5K) {
        std::memcpy(row.data() + 2, &one, 2);
      }
      const std::vector<float> x(block, -1.0f);
      const Coded coded = code(kernels(), x, block);
      const auto packed = pack(kernels(), coded, sample.type);
      float found = 0;
      kernels().row_products[static_cast<int>(sample.type)]({.weights = row.data(),
                                                             .row_bytes = block_bytes,
                                                             .num_rows = 1,
                                                             .columns = block,
                                                             .x = x.data(),
                                                             .codes = coded.codes.data(),
                                                             .packed = packed.data(),
                                                             .scales = coded.scales.data(),
                                                             .sums = coded.sums.data(),
                                                             .out = &found});
      std::vector<float> weights(block);
      kernels().widen[static_cast<int>(sample.type)](row.data(), weights.data(), block);
      double expected = 0;
      double size = 0;
      for (const float weight : weights) {
        expected -= double{weight};
        size += std::abs(double{weight});
      }
      EXPECT_NEAR(found, expected, 1e-4 * size) << "type " << static_cast<int>(sample.type);
    }
  }
}

TEST_P(ForwardKernelsOf, MultiplyDenseRowsAsDoublePrecisionDoes) {
  for (int type = 0; type < kNumDenseWeightTypes; ++type) {
    for (const std::uint32_t columns : {1u, 7u, 16u, 63u, 64u, 130u}) {
      const std::uint32_t num_rows = 1 + columns % 19;
      const std::size_t width = type == 0 ? 4 : 2;
      const auto source = draw(std::size_t{num_rows} * columns);
      // One byte off: rows of a file are aligned to nothing.
      std::vector<std::byte> bytes(source.size() * width + 1);
      const auto encode = kernel_table(Isa::kScalar).from_f32[type];
      encode(source.data(), bytes.data() + 1, source.size());
      std::vector<float> weights(source.size());
      kernels().widen[type](bytes.data() + 1, weights.data(), weights.size());
      const auto x = draw(columns);
      std::vector<float> found(num_rows, NAN);
      kernels().row_products[type]({.weights = bytes.data() + 1,
                                    .row_bytes = columns * width,
                                    .num_rows = num_rows,
                                    .columns = columns,
                                    .x = x.data(),
                                    .out = found.data()});
      for (std::uint32_t r = 0; r < num_rows; ++r) {
        double expected = 0;
        double size = 0;
        for (std::uint32_t c = 0; c < columns; ++c) {
          const double weight = weights[r * columns + c];
          EXPECT_NEAR(weight, source[r * columns + c], std::abs(weight) * (type == 0 ? 0 : 0x1p-8));
          expected += weight * x[c];
          size += std::abs(weight * x[c]);
        }
        EXPECT_NEAR(found[r], expected, columns * 0x1p-24 * size) << "type " << type;
      }
    }
  }
}

TEST_P(ForwardKernelsOf, NormsHaveUnitMeanSquare) {
  for (const std::uint32_t count : {1u, 5u, 16u, 48u, 100u}) {
    const auto x = draw(count);
    const auto weight = draw(count);
    std::vector<float> found(count);
    kernels().rms_norm({.x = x.data(),
                        .weight = weight.data(),
                        .out = found.data(),
                        .count = count,
                        .eps = 1e-5f});
    double squares = 0;
    for (const float value : x) squares += double{value} * value;
    const double root = std::sqrt(squares / count + 1e-5f);
    for (std::uint32_t i = 0; i < count; ++i) {
      const double expected = x[i] / root * weight[i];
      EXPECT_NEAR(found[i], expected, 1e-6 * std::abs(expected) + 1e-12);
    }
  }
}

TEST_P(ForwardKernelsOf, GatesFollowTheirFormulas) {
  std::vector<float> x = draw(101);
  for (const float special : {0.0f, 20.0f, -20.0f, 200.0f, -200.0f, 1e30f, -1e30f})
    x.push_back(special);
  const auto up = draw(x.size());
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    auto found = x;
    kernels().gate(
        {.gate = found.data(), .up = up.data(), .count = x.size(), .activation = activation});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = x[i];
      const double inner = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
      const double activated =
          activation == Activation::kSilu ? v / (1 + std::exp(-v)) : v / 2 * (1 + std::tanh(inner));
      EXPECT_NEAR(found[i], activated * up[i], 2e-6 * std::abs(v * up[i]) + 1e-7) << "x " << v;
    }
  }
}

TEST_P(ForwardKernelsOf, RotationsTurnPairsOfBothOrders) {
  constexpr std::uint32_t kDim = 20;
  constexpr std::uint32_t kTurning = 12;
  for (const RopeOrder order : {RopeOrder::kHalves, RopeOrder::kPairs}) {
    const auto before = draw(3 * kDim);
    auto after = before;
    std::vector<float> cosines, sines;
    for (std::uint32_t i = 0; i < kTurning / 2; ++i) {
      cosines.push_back(std::cos(0.3f * static_cast<float>(i)));
      sines.push_back(std::sin(0.3f * static_cast<float>(i)));
    }
    kernels().rotate({.heads = after.data(),
                      .num_heads = 3,
                      .head_dim = kDim,
                      .dims = kTurning,
                      .cosines = cosines.data(),
                      .sines = sines.data(),
                      .order = order});
    for (std::uint32_t head = 0; head < 3; ++head) {
      for (std::uint32_t i = 0; i < kTurning / 2; ++i) {
        const std::uint32_t a = head * kDim + (order == RopeOrder::kHalves ? i : 2 * i);
        const std::uint32_t b = order == RopeOrder::kHalves ? a + kTurning / 2 : a + 1;
        EXPECT_NEAR(after[a], before[a] * cosines[i] - before[b] * sines[i], 1e-6);
        EXPECT_NEAR(after[b], before[b] * cosines[i] + before[a] * sines[i], 1e-6);
      }
      for (std::uint32_t i = kTurning; i < kDim; ++i) {
        EXPECT_EQ(after[head * kDim + i], before[head * kDim + i]);
      }
    }
  }
}

}  // namespace
}  // namespace kvarto
