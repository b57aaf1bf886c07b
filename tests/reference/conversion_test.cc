// The element conversions of every instruction set against the definition of the formats.

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

#include "kernels/dispatch.h"
#include "reference/number_format.h"

namespace kvarto::test {
namespace {

class Conversion : public testing::TestWithParam<Isa> {
 protected:
  const KernelTable& kernels() const { return kernel_table(GetParam()); }
};

NumberFormat format_of(Element element) {
  return element == Element::kF16 ? kFormatF16 : kFormatBF16;
}

TEST_P(Conversion, ReadsEvery16BitNumberExactly) {
  for (const Element element : {Element::kF16, Element::kBF16}) {
    std::vector<std::uint16_t> codes(0x10000);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
    std::vector<float> values(codes.size());
    kernels().to_f32[static_cast<int>(element)](reinterpret_cast<const std::byte*>(codes.data()),
                                                values.data(), codes.size());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const double exact = decode(format_of(element), codes[i]);
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(values[i])) << i;
      } else {
        EXPECT_EQ(double{values[i]}, exact) << i;
      }
    }
  }
}

TEST_P(Conversion, RoundsToTheNearestEvenNumber) {
  std::mt19937 random(5);
  std::vector<float> values = {0.0f,           -0.0f,         INFINITY, -INFINITY,    65504.0f,
                               65519.9f,       65520.0f,      1e30f,    3.4e38f,      0x1p-24f,
                               0x1p-25f,       0x1.8p-25f,    0x1p-14f, 0x1.ffcp-15f, 0x1.ffep-15f,
                               1.00048828125f, 1.00146484375f};
  while (values.size() < 20001) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    values.push_back(
        std::ldexp(static_cast<float>(random() % 4096), static_cast<int>(random() % 40) - 30));
  }
  for (const Element element : {Element::kF16, Element::kBF16}) {
    std::vector<std::uint16_t> codes(values.size());
    kernels().from_f32[static_cast<int>(element)](
        values.data(), reinterpret_cast<std::byte*>(codes.data()), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        EXPECT_TRUE(std::isnan(decode(format_of(element), codes[i]))) << i;
      } else {
        EXPECT_EQ(codes[i], encode(format_of(element), double{values[i]})) << values[i];
      }
    }
  }
}

TEST_P(Conversion, WritesATileRowInItsColumnAndNothingElse) {
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    const std::size_t bytes = element == Element::kF32 ? 4 : 2;
    for (const std::size_t count : {1u, 5u, 16u, 37u}) {
      std::vector<float> row(count);
      for (std::size_t d = 0; d < count; ++d) row[d] = static_cast<float>(d) + 0.5f;
      std::vector<std::byte> plain(count * bytes);
      kernels().from_f32[static_cast<int>(element)](row.data(), plain.data(), count);
      std::vector<std::byte> tile(count * 16 * bytes, std::byte{0x5a});
      constexpr std::size_t kRow = 11;
      kernels().from_f32_tile[static_cast<int>(element)](row.data(), tile.data() + kRow * bytes,
                                                         count);
      for (std::size_t d = 0; d < count; ++d) {
        for (std::size_t r = 0; r < 16; ++r) {
          for (std::size_t b = 0; b < bytes; ++b) {
            const std::byte expected = r == kRow ? plain[d * bytes + b] : std::byte{0x5a};
            ASSERT_EQ(tile[(d * 16 + r) * bytes + b], expected);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Conversion,
                         testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

}  // namespace
}  // namespace kvarto::test
