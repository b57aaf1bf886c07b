#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvarto {
namespace {

TEST(Float16, WidensAndNarrowsEveryF16WithoutChange) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = float_from_f16(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float_from_f16(f16_from_float(value)))) << bits;
    } else {
      EXPECT_EQ(f16_from_float(value), half) << bits;
    }
  }
}

// The value of every finite half by the words of IEEE 754-2008, 3.4.
TEST(Float16, WidensByTheStandard) {
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const int exponent = static_cast<int>(bits >> 10);
    const double fraction = bits & 0x3FF;
    const double expected =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    EXPECT_EQ(float_from_f16(static_cast<std::uint16_t>(bits)), expected) << bits;
  }
}

TEST(Float16, RoundsF16ToNearestEven) {
  EXPECT_EQ(f16_from_float(1.0f + 0x1p-11f), 0x3C00) << "a tie goes to the even neighbour";
  EXPECT_EQ(f16_from_float(1.0f + 0x3p-11f), 0x3C02);
  EXPECT_EQ(f16_from_float(1.0f + 0x1.2p-11f), 0x3C01);
  EXPECT_EQ(f16_from_float(65519.0f), 0x7BFF);
  EXPECT_EQ(f16_from_float(65520.0f), 0x7C00);
  EXPECT_EQ(f16_from_float(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(f16_from_float(0x1p-25f), 0x0000) << "half of the smallest, a tie";
  EXPECT_EQ(f16_from_float(0x1.8p-25f), 0x0001);
  EXPECT_EQ(f16_from_float(0x1.ffcp-15f), 0x0400) << "rounds up into the normal numbers";
}

TEST(Float16, RoundsBf16ToNearestEven) {
  EXPECT_EQ(bf16_from_float(1.0f), 0x3F80);
  EXPECT_EQ(bf16_from_float(1.0f + 0x1p-8f), 0x3F80) << "a tie goes to the even neighbour";
  EXPECT_EQ(bf16_from_float(1.0f + 0x3p-8f), 0x3F82);
  EXPECT_EQ(bf16_from_float(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(std::nanf("")))));
  EXPECT_EQ(float_from_bf16(0xC040), -3.0f);
}

}  // namespace
}  // namespace kvarto
