#include "kvarto/codec.h"

#include <gtest/gtest.h>

namespace kvarto {
namespace {

struct Expected {
  const char* name;
  std::uint64_t bytes_per_128;
};

// Bytes of a 128-wide head row: facts collected from ggml-common.h, the vLLM interface file and
// FlashMLA's README.
class CodecBytes128 : public testing::TestWithParam<Expected> {};

TEST_P(CodecBytes128, HasThePublishedSize) {
  const auto codec = codec_from_name(GetParam().name);
  ASSERT_TRUE(codec.has_value());
  EXPECT_EQ(codec_bytes(*codec, 128).total(), GetParam().bytes_per_128);
}

INSTANTIATE_TEST_SUITE_P(
    AllFormats, CodecBytes128,
    testing::Values(Expected{"f32", 512}, Expected{"f16", 256}, Expected{"bf16", 256},
                    Expected{"fp8_e4m3", 128}, Expected{"fp8_e5m2", 128}, Expected{"q8_0", 136},
                    Expected{"q5_1", 96}, Expected{"q5_0", 88}, Expected{"q4_1", 80},
                    Expected{"q4_0", 72}, Expected{"iq4_nl", 72}, Expected{"int8", 132},
                    Expected{"int4", 68}, Expected{"nvfp4", 72}, Expected{"mxfp4", 68},
                    Expected{"fp8_scaled_128", 132}, Expected{"fp8_scaled_64", 130},
                    Expected{"fp8_scaled_32", 132}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Codec, HasNoUnknownName) { EXPECT_FALSE(codec_from_name("q9_9").has_value()); }

TEST(Codec, RoundsAnOddNumberOfNibblesUpToWholeBytes) {
  EXPECT_EQ(codec_bytes(Codec::kInt4, 5).payload, 3u);
}

TEST(Codec, NeedsNoBytesForNoElements) { EXPECT_EQ(codec_bytes(Codec::kInt8, 0).total(), 0u); }

}  // namespace
}  // namespace kvarto
