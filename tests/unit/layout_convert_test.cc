#include "kvarto/layout_convert.h"

#include <gtest/gtest.h>

#include <cstring>

#include "cache_models.h"

namespace kvarto {
namespace {

std::vector<std::uint16_t> counted(std::size_t count) {
  std::vector<std::uint16_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::uint16_t>(i);
  return values;
}

// 32 rows, 2 heads of 4 elements. Generic: value of (row, head, element) at (row x 2 + head) x 4 +
// element. Tiles: head, then row / 16, then element, then row % 16.
TEST(LayoutConvert, TransposesKeysInTilesOfSixteenRows) {
  const ModelSpec model = dense_model(2, 4, Codec::kF16);
  const auto generic = counted(32 * 2 * 4);
  std::vector<std::uint16_t> tiles(generic.size());
  const SliceLayout slice{model.groups[0], 0, 32};
  ASSERT_TRUE(convert_layout(slice, Layout::kGeneric, std::as_bytes(std::span(generic)),
                             Layout::kHardware, std::as_writable_bytes(std::span(tiles))));
  const auto tile_at = [&](int row, int head, int element) {
    return tiles[static_cast<std::size_t>(head * 128 + row / 16 * 64 + element * 16 + row % 16)];
  };
  EXPECT_EQ(tile_at(0, 0, 1), 1);
  EXPECT_EQ(tile_at(17, 1, 3), (17 * 2 + 1) * 4 + 3);
  EXPECT_EQ(tile_at(31, 0, 2), 31 * 2 * 4 + 2);
}

TEST(LayoutConvert, KeepsValuesRowByRowButHeadAfterHead) {
  const ModelSpec model = dense_model(2, 4, Codec::kBF16);
  const auto generic = counted(16 * 2 * 4);
  std::vector<std::uint16_t> hardware(generic.size());
  const SliceLayout slice{model.groups[0], 1, 16};
  ASSERT_TRUE(convert_layout(slice, Layout::kGeneric, std::as_bytes(std::span(generic)),
                             Layout::kHardware, std::as_writable_bytes(std::span(hardware))));
  EXPECT_EQ(hardware[1 * 64 + 5 * 4 + 2], (5 * 2 + 1) * 4 + 2);
}

TEST(LayoutConvert, RefusesSpansThatAreTooShort) {
  const ModelSpec model = dense_model(2, 4, Codec::kF16);
  std::vector<std::byte> bytes(100);
  EXPECT_FALSE(
      convert_layout({model.groups[0], 0, 16}, Layout::kGeneric, bytes, Layout::kHardware, bytes));
  EXPECT_FALSE(
      convert_layout({model.groups[0], 2, 1}, Layout::kGeneric, bytes, Layout::kHardware, bytes));
}

}  // namespace
}  // namespace kvarto
