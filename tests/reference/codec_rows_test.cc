// The codecs of every instruction set: against rows of other implementations (tests/golden), and
// against what the formats promise.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "kernels/dispatch.h"
#include "kvarto/codec.h"
#include "reference/number_format.h"

namespace kvarto::test {
namespace {

std::vector<std::byte> bytes_of_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<float> floats_of_hex(const std::string& hex) {
  const std::vector<std::byte> bytes = bytes_of_hex(hex);
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

struct GoldenRow {
  Codec codec{};
  std::string input;
  std::vector<float> x;
  std::vector<std::byte> encoded;
  std::vector<float> decoded;
};

std::vector<GoldenRow> golden_rows() {
  std::ifstream file(KVARTO_SOURCE_DIR "/tests/golden/codec_rows.txt");
  std::map<std::string, std::vector<float>> inputs;
  std::vector<GoldenRow> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind, name, input, first, second;
    words >> kind >> name;
    if (kind == "input") {
      words >> first;
      inputs[name] = floats_of_hex(first);
    } else if (kind == "row") {
      words >> input >> first >> second;
      rows.push_back({codec_from_name(name).value(), input, inputs.at(input), bytes_of_hex(first),
                      floats_of_hex(second)});
    }
  }
  return rows;
}

// The codecs that have scales or rounding of their own, in the order of the enumeration.
std::vector<Codec> row_codecs() {
  return {Codec::kFp8E4M3,      Codec::kFp8E5M2,     Codec::kQ8_0,       Codec::kQ5_1,
          Codec::kQ5_0,         Codec::kQ4_1,        Codec::kQ4_0,       Codec::kIq4Nl,
          Codec::kInt8,         Codec::kInt4,        Codec::kNvfp4,      Codec::kMxfp4,
          Codec::kFp8Scaled128, Codec::kFp8Scaled64, Codec::kFp8Scaled32};
}

class CodecRows : public testing::TestWithParam<Isa> {
 protected:
  static std::vector<std::byte> encode(Isa isa, Codec codec, const std::vector<float>& x) {
    std::vector<std::byte> bytes(codec_bytes(codec, x.size()).total());
    kernel_table(isa).encode[static_cast<int>(codec)](x.data(), bytes.data(), x.size());
    return bytes;
  }
  static std::vector<float> decode(Isa isa, Codec codec, const std::vector<std::byte>& bytes,
                                   std::size_t width) {
    std::vector<float> x(width);
    kernel_table(isa).decode[static_cast<int>(codec)](bytes.data(), x.data(), width);
    return x;
  }
  static std::vector<float> round_trip(Codec codec, const std::vector<float>& x) {
    return decode(GetParam(), codec, encode(GetParam(), codec, x), x.size());
  }
};

// All NaNs alike: which of two a sum keeps is the processor's affair.
std::vector<std::uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> bits;
  for (const float value : x) {
    bits.push_back(std::bit_cast<std::uint32_t>(std::isnan(value) ? NAN : value));
  }
  return bits;
}

std::vector<float> normal_row(std::size_t width, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(width);
  for (float& value : x) value = normal(random) * std::exp2(normal(random) * 3);
  return x;
}

TEST_P(CodecRows, GivesTheBytesOfOtherImplementations) {
  const std::vector<GoldenRow> rows = golden_rows();
  ASSERT_EQ(rows.size(), 8 * row_codecs().size());
  for (const GoldenRow& row : rows) {
    const auto name = codec_info(row.codec).name;
    EXPECT_EQ(encode(GetParam(), row.codec, row.x), row.encoded) << name << " " << row.input;
  }
}

TEST_P(CodecRows, ReadsTheNumbersOfOtherImplementations) {
  for (const GoldenRow& row : golden_rows()) {
    const std::vector<float> x = decode(GetParam(), row.codec, row.encoded, row.x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(row.decoded[i])) {
        EXPECT_TRUE(std::isnan(x[i])) << codec_info(row.codec).name << " " << row.input << " " << i;
      } else {
        EXPECT_EQ(x[i], row.decoded[i])
            << codec_info(row.codec).name << " " << row.input << " " << i;
      }
    }
  }
}

// Random bits: subnormals, huge numbers, infinities and NaNs too.
TEST_P(CodecRows, AreEqualBitForBitOnEveryInstructionSet) {
  std::mt19937 random(11);
  for (const Codec codec : row_codecs()) {
    for (const std::size_t width : {32u, 64u, 128u, 192u, 256u}) {
      for (int round = 0; round < 50; ++round) {
        std::vector<float> x = normal_row(width, static_cast<unsigned>(random()));
        if (round % 3 == 1) x[random() % width] = std::bit_cast<float>(std::uint32_t(random()));
        if (round % 10 == 2) std::fill(x.begin(), x.end(), round % 20 == 2 ? -0.0f : 0x1p-140f);
        EXPECT_EQ(encode(GetParam(), codec, x), encode(Isa::kScalar, codec, x))
            << codec_info(codec).name;
        std::vector<std::byte> bytes(codec_bytes(codec, width).total());
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
        EXPECT_EQ(bits_of(decode(GetParam(), codec, bytes, width)),
                  bits_of(decode(Isa::kScalar, codec, bytes, width)))
            << codec_info(codec).name;
      }
    }
  }
}

TEST_P(CodecRows, TouchExactlyTheBytesOfTheirWidth) {
  for (const Codec codec : row_codecs()) {
    const bool is_any_width = codec_info(codec).is_partial_group_allowed;
    for (const std::size_t width : {1u, 3u, 31u, 32u, 72u, 96u, 129u, 160u}) {
      if (!is_any_width && width % codec_info(codec).group_elements != 0) continue;
      const std::size_t size = codec_bytes(codec, width).total();
      const std::vector<float> x = normal_row(width, 3);
      std::vector<std::byte> bytes(size + 64, std::byte{0x5a});
      kernel_table(GetParam()).encode[static_cast<int>(codec)](x.data(), bytes.data(), width);
      std::vector<float> y(width + 16, 12345.0f);
      // Read where the row ends with the allocation: a sanitizer sees what is read beyond.
      const std::vector<std::byte> exact(bytes.begin(), bytes.begin() + std::ptrdiff_t(size));
      kernel_table(GetParam()).decode[static_cast<int>(codec)](exact.data(), y.data(), width);
      for (std::size_t i = size; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], std::byte{0x5a});
      for (std::size_t i = width; i < y.size(); ++i) EXPECT_EQ(y[i], 12345.0f);
      EXPECT_EQ(bits_of(decode(GetParam(), codec, exact, width)),
                bits_of(decode(Isa::kScalar, codec, exact, width)));
    }
  }
}

TEST_P(CodecRows, ReadZeroBytesAsZeros) {
  for (const Codec codec : row_codecs()) {
    const std::vector<std::byte> bytes(codec_bytes(codec, 128).total());
    for (const float x : decode(GetParam(), codec, bytes, 128)) EXPECT_EQ(x, 0.0f);
  }
}

// Never a wrong number in silence: what has no place in a format reads back as NaN, with all that
// shares its scale; 8-bit floating point without scales has a place for everything but infinity.
TEST_P(CodecRows, ShowNumbersThatAreNotFinite) {
  for (const Codec codec : row_codecs()) {
    if (codec == Codec::kFp8E4M3 || codec == Codec::kFp8E5M2) continue;
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> x = normal_row(256, 5);
      x[200] = bad;
      const std::vector<float> y = round_trip(codec, x);
      EXPECT_TRUE(std::isnan(y[200])) << codec_info(codec).name;
      const std::size_t group = codec_info(codec).group_elements;
      if (group != 0) {
        EXPECT_FALSE(std::isnan(y[200 / group * group - 1])) << codec_info(codec).name;
      }
    }
  }
  EXPECT_TRUE(std::isnan(round_trip(Codec::kFp8E4M3, {NAN})[0]));
  EXPECT_TRUE(std::isnan(round_trip(Codec::kFp8E5M2, {NAN})[0]));
  EXPECT_EQ(round_trip(Codec::kFp8E4M3, {INFINITY, -1e9f, 449}),
            (std::vector<float>{448, -448, 448}));
  EXPECT_EQ(round_trip(Codec::kFp8E5M2, {INFINITY, -1e9f, 60000}),
            (std::vector<float>{57344, -57344, 57344}));
}

// Codes as the OCP specification defines them: sign, exponent, mantissa.
double fp8_value(Codec codec, int code) {
  const int mantissa_bits = codec == Codec::kFp8E4M3 ? 3 : 2;
  const int bias = codec == Codec::kFp8E4M3 ? 7 : 15;
  const double sign = code >= 128 ? -1 : 1;
  const int exponent = (code & 127) >> mantissa_bits;
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  if (codec == Codec::kFp8E4M3 && (code & 127) == 127) return NAN;
  if (codec == Codec::kFp8E5M2 && exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

TEST_P(CodecRows, HaveEveryNumberOfEightBitFloatingPoint) {
  for (const Codec codec : {Codec::kFp8E4M3, Codec::kFp8E5M2}) {
    std::vector<std::byte> codes(256);
    for (int i = 0; i < 256; ++i) codes[std::size_t(i)] = static_cast<std::byte>(i);
    const std::vector<float> values = decode(GetParam(), codec, codes, 256);
    for (int i = 0; i < 256; ++i) {
      const double exact = fp8_value(codec, i);
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(values[std::size_t(i)])) << i;
        continue;
      }
      EXPECT_EQ(double{values[std::size_t(i)]}, exact) << i;
      if (std::isinf(exact)) continue;
      EXPECT_EQ(encode(GetParam(), codec, {static_cast<float>(exact)})[0], codes[std::size_t(i)]);
    }
    // Between two neighbours: the nearer one; halfway, the even code.
    for (int i = 0; std::isfinite(fp8_value(codec, i + 1)); ++i) {
      const auto middle = static_cast<float>((fp8_value(codec, i) + fp8_value(codec, i + 1)) / 2);
      const auto code = [&](float x) {
        return static_cast<int>(encode(GetParam(), codec, {x})[0]);
      };
      EXPECT_EQ(code(middle), i % 2 == 0 ? i : i + 1);
      EXPECT_EQ(code(std::nextafter(middle, 0.0f)), i);
      EXPECT_EQ(code(std::nextafter(middle, 1e9f)), i + 1);
      EXPECT_EQ(code(-middle), (i % 2 == 0 ? i : i + 1) + 128);
    }
  }
}

// Largest error of one element, from the definition of its format. `x` is the element's group.
double error_bound(Codec codec, std::span<const float> group, double x) {
  double largest = 0;
  double low = group[0];
  double high = group[0];
  for (const float each : group) {
    largest = std::max(largest, std::fabs(double{each}));
    low = std::min(low, double{each});
    high = std::max(high, double{each});
  }
  const double f16_rounding = std::ldexp(1, -11);
  const double f16_tiny = std::ldexp(1, -25);
  const double f32_slack = largest * std::ldexp(1, -20);
  // A step, half of it, and what rounding the scale to f16 moves the outermost code by.
  const auto uniform = [&](double step, double half, double last) {
    return half * step + last * (step * f16_rounding + f16_tiny) + f32_slack;
  };
  const auto fp8 = [&](double scale) {
    const double magnitude = std::max(std::fabs(x) / scale, std::ldexp(1, -6));
    return scale * std::ldexp(1, std::ilogb(magnitude) - 4);
  };
  switch (codec) {
    case Codec::kInt8:
      return largest / 127 / 2 + f32_slack;
    case Codec::kInt4:
      return largest / 7 / 2 + f32_slack;
    case Codec::kQ8_0:
      return uniform(largest / 127, 0.5, 127);
    case Codec::kQ5_0:  // codes reach from -16 to 15 steps: the far end is a whole step off
      return uniform(largest / 16, 1, 16);
    case Codec::kQ4_0:
      return uniform(largest / 8, 1, 8);
    case Codec::kQ5_1:
      return uniform((high - low) / 31, 0.5, 31) + largest * f16_rounding + f16_tiny;
    case Codec::kQ4_1:
      return uniform((high - low) / 15, 0.5, 15) + largest * f16_rounding + f16_tiny;
    case Codec::kFp8Scaled128:
    case Codec::kFp8Scaled64:
    case Codec::kFp8Scaled32:
      return fp8(std::exp2(std::ceil(std::log2(std::max(largest / 448, 1e-4))))) + f32_slack;
    case Codec::kMxfp4: {
      const double scale = std::exp2(std::floor(std::log2(largest)) - 2);
      const double y = std::fabs(x) / scale;
      return scale * (y > 6 ? y - 6 : y > 4 ? 1 : y > 2 ? 0.5 : 0.25);
    }
    case Codec::kNvfp4: {  // the scale is off by 1 / 16 at most, or half a smallest E4M3
      const double scale = largest / 6;
      const double off = std::max(scale / 16, std::ldexp(1, -10));
      return (scale + off) + 6 * off;
    }
    default:
      return INFINITY;
  }
}

TEST_P(CodecRows, AreOffByNoMoreThanTheirFormatSays) {
  for (const Codec codec : row_codecs()) {
    const std::size_t group = codec_info(codec).group_elements;
    for (unsigned seed = 0; seed < 40; ++seed) {
      std::vector<float> x = normal_row(256, seed);
      if (codec == Codec::kNvfp4) {
        for (float& value : x) value = std::clamp(value, -2688.0f, 2688.0f);
      }
      const std::vector<float> y = round_trip(codec, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t size = group > 1 ? group : x.size();
        const auto span = std::span<const float>(x).subspan(i / size * size, size);
        EXPECT_LE(std::fabs(double{x[i]} - y[i]), error_bound(codec, span, x[i]))
            << codec_info(codec).name << " " << x[i];
      }
    }
  }
}

// iq4_nl has no bound of one element: its scale fits the whole block. Its error is that of the best
// of the 16 values under that scale.
TEST_P(CodecRows, TakeTheNearestOfTheSixteenValues) {
  constexpr int kValues[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                             1,    13,   25,  38,  53,  69,  89,  113};
  for (unsigned seed = 0; seed < 40; ++seed) {
    const std::vector<float> x = normal_row(32, seed);
    const std::vector<std::byte> bytes = encode(GetParam(), Codec::kIq4Nl, x);
    float largest = 0;
    for (const float each : x) {
      if (std::fabs(each) > std::fabs(largest)) largest = each;
    }
    for (std::size_t i = 0; i < 32; ++i) {
      const auto pair = static_cast<int>(bytes[2 + i % 16]);
      const int code = i < 16 ? pair & 15 : pair >> 4;
      const double scaled = double{x[i]} * -127 / double{largest};
      for (const int value : kValues) {
        EXPECT_LE(std::fabs(scaled - kValues[code]), std::fabs(scaled - value) + 1e-4);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, CodecRows,
                         testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

}  // namespace
}  // namespace kvarto::test
