#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <map>

#include "kvarto/block_pool.h"

namespace kvarto {
namespace {

// The same pool, written for the eye: a list of free ids and a map of counts.
struct NaivePool {
  std::deque<std::uint32_t> free;
  std::map<std::uint32_t, std::uint32_t> counts;

  explicit NaivePool(std::uint32_t num_blocks) {
    for (std::uint32_t i = 0; i < num_blocks; ++i) free.push_back(i);
  }
  std::optional<BlockId> allocate() {
    if (free.empty()) return std::nullopt;
    const std::uint32_t block = free.front();
    free.pop_front();
    counts[block] = 1;
    return BlockId{block};
  }
  void release(std::uint32_t block) {
    if (--counts[block] > 0) return;
    counts.erase(block);
    free.push_back(block);
  }
};

// Requests that hold blocks, some shared with others, as a server has them.
using Requests = std::vector<std::vector<std::uint32_t>>;

void cancel(BlockPool& pool, NaivePool& naive, std::vector<std::uint32_t>& blocks) {
  for (const std::uint32_t block : blocks) {
    RC_ASSERT(pool.release(BlockId{block}).has_value());
    naive.release(block);
  }
  blocks.clear();
}

void step(BlockPool& pool, NaivePool& naive, Requests& requests) {
  auto& blocks = requests[*rc::gen::inRange<std::size_t>(0, requests.size())];
  switch (*rc::gen::inRange(0, 8)) {
    case 0:
      cancel(pool, naive, blocks);
      break;
    case 1: {  // share all of another request's blocks
      const auto& other = requests[*rc::gen::inRange<std::size_t>(0, requests.size())];
      const std::vector<std::uint32_t> shared = other;
      for (const std::uint32_t block : shared) {
        RC_ASSERT(pool.add_ref(BlockId{block}).has_value());
        ++naive.counts[block];
        blocks.push_back(block);
      }
      break;
    }
    case 2: {  // a stranger's id
      const auto block = *rc::gen::inRange<std::uint32_t>(0, 200);
      if (naive.counts.count(block) == 0) {
        RC_ASSERT(!pool.release(BlockId{block}).has_value());
        RC_ASSERT(!pool.add_ref(BlockId{block}).has_value());
      }
      break;
    }
    case 3:
      if (!blocks.empty()) {
        const std::uint32_t block = blocks.back();
        blocks.pop_back();
        RC_ASSERT(*pool.release(BlockId{block}) == naive.counts[block] - 1);
        naive.release(block);
      }
      break;
    default: {
      const auto block = pool.allocate();
      RC_ASSERT(block == naive.allocate());
      if (block) blocks.push_back(static_cast<std::uint32_t>(*block));
    }
  }
}

RC_GTEST_PROP(BlockPoolProperty, AgreesWithANaivePoolUnderAnyScheduleWithCancellations, ()) {
  const auto num_blocks = *rc::gen::inRange<std::uint32_t>(0, 40);
  BlockPool pool = *BlockPool::create(num_blocks);
  NaivePool naive(num_blocks);
  Requests requests(5);
  const int steps = *rc::gen::inRange(1, 200);
  for (int i = 0; i < steps; ++i) {
    step(pool, naive, requests);
    RC_ASSERT(pool.num_free() == naive.free.size());
    RC_ASSERT(pool.verify().has_value());
  }
  for (std::uint32_t block = 0; block < num_blocks; ++block) {
    const auto found = naive.counts.find(block);
    RC_ASSERT(pool.ref_count(BlockId{block}) == (found == naive.counts.end() ? 0 : found->second));
  }
  for (auto& blocks : requests) cancel(pool, naive, blocks);
  while (!naive.free.empty()) RC_ASSERT(pool.allocate() == naive.allocate());
  RC_ASSERT(pool.allocate() == std::nullopt);
}

}  // namespace
}  // namespace kvarto
