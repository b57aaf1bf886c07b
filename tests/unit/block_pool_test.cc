#include "kvarto/block_pool.h"

#include <gtest/gtest.h>

namespace kvarto {
namespace {

BlockPool pool_of(std::uint64_t num_blocks) { return *BlockPool::create(num_blocks); }

TEST(BlockPool, HandsOutUnusedBlocksInAscendingOrder) {
  BlockPool pool = pool_of(3);
  EXPECT_EQ(pool.allocate(), BlockId{0});
  EXPECT_EQ(pool.allocate(), BlockId{1});
  EXPECT_EQ(pool.allocate(), BlockId{2});
  EXPECT_EQ(pool.num_free(), 0u);
}

TEST(BlockPool, AnswersNoBlockWhenNoneIsFreeAndChangesNothing) {
  BlockPool pool = pool_of(1);
  ASSERT_TRUE(pool.allocate());
  EXPECT_EQ(pool.allocate(), std::nullopt);
  EXPECT_EQ(pool.ref_count(BlockId{0}), 1u);
  EXPECT_TRUE(pool.verify());
}

TEST(BlockPool, ReusesTheBlockThatHasBeenFreeLongest) {
  BlockPool pool = pool_of(3);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pool.allocate());
  ASSERT_TRUE(pool.release(BlockId{2}));
  ASSERT_TRUE(pool.release(BlockId{0}));
  EXPECT_EQ(pool.allocate(), BlockId{2});
  EXPECT_EQ(pool.allocate(), BlockId{0});
}

TEST(BlockPool, FreesABlockWithItsLastReference) {
  BlockPool pool = pool_of(1);
  const BlockId block = *pool.allocate();
  ASSERT_TRUE(pool.add_ref(block));
  EXPECT_EQ(*pool.release(block), 1u);
  EXPECT_EQ(pool.num_free(), 0u);
  EXPECT_EQ(*pool.release(block), 0u);
  EXPECT_EQ(pool.num_free(), 1u);
}

TEST(BlockPool, RefusesToReleaseABlockTwice) {
  BlockPool pool = pool_of(2);
  const BlockId block = *pool.allocate();
  ASSERT_TRUE(pool.release(block));
  const auto again = pool.release(block);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(pool.num_free(), 2u);
  EXPECT_TRUE(pool.verify());
}

TEST(BlockPool, RefusesIdsThatItDoesNotHave) {
  BlockPool pool = pool_of(2);
  EXPECT_FALSE(pool.release(BlockId{2}));
  EXPECT_FALSE(pool.add_ref(BlockId{0xFFFF'FFFF}));
  EXPECT_FALSE(pool.add_ref(BlockId{1})) << "a free block has no owner who could share it";
  EXPECT_EQ(pool.ref_count(BlockId{7}), 0u);
}

TEST(BlockPool, TakesNoMoreThanSixteenBytesABlockWithItsTableEntry) {
  const BlockPool pool = pool_of(1000);
  EXPECT_EQ(pool.metadata_bytes(), 8000u);
}

TEST(BlockPool, MayBeEmpty) {
  BlockPool pool = pool_of(0);
  EXPECT_EQ(pool.allocate(), std::nullopt);
  EXPECT_TRUE(pool.verify());
}

TEST(BlockPool, RefusesMoreBlocksThanIdsExist) {
  EXPECT_FALSE(BlockPool::create(std::uint64_t{1} << 32));
}

}  // namespace
}  // namespace kvarto
