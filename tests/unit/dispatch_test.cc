#include "kernels/dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kvarto {
namespace {

TEST(Dispatch, TakesTheBestSupportedSetWhenNothingIsAsked) {
  EXPECT_EQ(choose_isa(nullptr).value(), supported_isas().back());
  EXPECT_EQ(choose_isa("").value(), supported_isas().back());
}

TEST(Dispatch, RefusesAnUnknownSet) {
  for (const char* name : {"avx3", "AVX2", "avx512 ", "best"}) {
    const auto isa = choose_isa(name);
    ASSERT_FALSE(isa.has_value()) << name;
    EXPECT_EQ(isa.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(isa.error().message.find(name), std::string::npos);
  }
}

TEST(Dispatch, ForcesEverySupportedSetAndRefusesTheOthers) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    const std::string name(isa_name(isa));
    const auto chosen = choose_isa(name.c_str());
    if (std::ranges::find(supported_isas(), isa) != supported_isas().end()) {
      EXPECT_EQ(chosen.value(), isa);
      EXPECT_EQ(kernel_table(isa).isa, isa);
      EXPECT_EQ(kernel_table(isa).name, name);
    } else {
      ASSERT_FALSE(chosen.has_value());
      EXPECT_EQ(chosen.error().code, ErrorCode::kUnsupported);
    }
  }
}

TEST(Dispatch, FillsEveryEntryOfEveryTable) {
  for (const Isa isa : supported_isas()) {
    const KernelTable& table = kernel_table(isa);
    for (int e = 0; e < kNumElements; ++e) {
      for (int t = 0; t < kNumQueryTiles; ++t) {
        EXPECT_NE(table.score_tiles[e][t], nullptr);
        EXPECT_NE(table.score_rows[e][t], nullptr);
        EXPECT_NE(table.accumulate[e][t], nullptr);
      }
      EXPECT_NE(table.to_f32[e], nullptr);
      EXPECT_NE(table.from_f32[e], nullptr);
      EXPECT_NE(table.from_f32_tile[e], nullptr);
    }
    EXPECT_NE(table.softmax, nullptr);
    EXPECT_NE(table.combine, nullptr);
    EXPECT_NE(table.pack_query_tile, nullptr);
    EXPECT_NE(table.pack_query_rows, nullptr);
    EXPECT_NE(table.transpose, nullptr);
  }
}

}  // namespace
}  // namespace kvarto
