// Read plans and split plans: every visible row once for every sequence, and fairly divided.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <numeric>

#include "attention/read_plan.h"
#include "attention/split_plan.h"
#include "kernels/kernels.h"

namespace kvarto {
namespace {

constexpr std::uint32_t kRowsPerBlock = 16;

// Sequences that fork from each other at random places, as a pool would leave them.
struct Forest {
  std::vector<std::vector<std::uint32_t>> tables;
  std::vector<SequenceView> sequences;
  std::vector<RowRange> visible;
};

Forest random_forest() {
  Forest forest;
  std::uint32_t next_block = 0;
  const auto count = *rc::gen::inRange<std::size_t>(1, 9);
  std::vector<std::uint64_t> lengths;
  for (std::size_t s = 0; s < count; ++s) {
    std::vector<std::uint32_t> table;
    if (s > 0 && *rc::gen::arbitrary<bool>()) {
      const auto& parent = forest.tables[*rc::gen::inRange<std::size_t>(0, s)];
      const auto shared = *rc::gen::inRange<std::size_t>(0, parent.size() + 1);
      table.assign(parent.begin(), parent.begin() + static_cast<std::ptrdiff_t>(shared));
    }
    const auto own = *rc::gen::inRange<std::size_t>(table.empty() ? 1 : 0, 20);
    for (std::size_t i = 0; i < own; ++i) table.push_back(next_block++);
    const auto last = *rc::gen::inRange<std::uint64_t>(1, kRowsPerBlock + 1);
    lengths.push_back((table.size() - 1) * kRowsPerBlock + last);
    forest.tables.push_back(std::move(table));
  }
  const auto window = *rc::gen::element<std::uint64_t>(0, 1, 40, 100);
  for (std::size_t s = 0; s < count; ++s) {
    forest.sequences.push_back({forest.tables[s], 0, lengths[s]});
    AttentionOptions options;
    options.window = window;
    forest.visible.push_back(visible_rows(lengths[s] - 1, options));
  }
  return forest;
}

RC_GTEST_PROP(ReadPlan, CoversEveryVisibleRowOnceFromTheRightBlock, ()) {
  const Forest forest = random_forest();
  const auto segments = plan_reads(forest.sequences, kRowsPerBlock, forest.visible);
  std::map<std::pair<std::uint32_t, std::uint64_t>, int> times_read;
  for (const Segment& segment : segments) {
    RC_ASSERT(segment.rows.num_rows() > 0u);
    const auto& table = forest.tables[segment.members.front()];
    for (const std::uint32_t member : segment.members) {
      for (std::uint64_t row = segment.rows.first; row < segment.rows.end; ++row) {
        ++times_read[{member, row}];
        RC_ASSERT(forest.tables[member].at(row / kRowsPerBlock) == table.at(row / kRowsPerBlock));
      }
    }
  }
  std::size_t expected = 0;
  for (std::uint32_t s = 0; s < forest.sequences.size(); ++s) {
    expected += forest.visible[s].num_rows();
    for (std::uint64_t row = forest.visible[s].first; row < forest.visible[s].end; ++row) {
      RC_ASSERT((times_read[{s, row}]) == 1);
    }
  }
  RC_ASSERT(times_read.size() == expected);
}

RC_GTEST_PROP(ReadPlan, ReadsNoMoreRowsThanSequencesAlone, ()) {
  const Forest forest = random_forest();
  std::uint64_t alone = 0;
  for (const RowRange& rows : forest.visible) alone += rows.num_rows();
  std::uint64_t shared = 0;
  for (const Segment& segment : plan_reads(forest.sequences, kRowsPerBlock, forest.visible)) {
    shared += segment.rows.num_rows();
  }
  RC_ASSERT(shared <= alone);
}

TEST(ReadPlan, SharesALongPrefixOfMostSequencesThoughOneSharesLittle) {
  // Sequence 0 shares one block with the others, which share 100 with each other.
  std::vector<std::uint32_t> first(100);
  std::iota(first.begin(), first.end(), 0u);
  std::vector<std::uint32_t> short_one = {0, 500};
  const std::vector<SequenceView> sequences = {
      {short_one, 0, 32}, {first, 0, 1600}, {first, 0, 1600}};
  const std::vector<RowRange> visible = {{0, 32}, {0, 1600}, {0, 1600}};
  std::uint64_t rows = 0;
  for (const Segment& segment : plan_reads(sequences, kRowsPerBlock, visible)) {
    rows += segment.rows.num_rows();
  }
  EXPECT_EQ(rows, 1600u + 32);
}

std::vector<Segment> random_segments() {
  const auto lengths = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(1, 20000)));
  std::vector<Segment> segments;
  for (std::uint32_t s = 0; s < lengths.size(); ++s) segments.push_back({{0, lengths[s]}, {s}});
  return segments;
}

RC_GTEST_PROP(SplitPlan, GivesEveryRowToExactlyOneThread, ()) {
  const auto segments = random_segments();
  const auto threads = *rc::gen::inRange<std::size_t>(1, 33);
  const SplitPlan plan = plan_split(segments, 4, threads);
  RC_ASSERT(plan.thread_begin.size() == threads + 1);
  RC_ASSERT(plan.thread_begin.front() == 0u);
  RC_ASSERT(plan.thread_begin.back() == plan.items.size());
  RC_ASSERT(std::is_sorted(plan.thread_begin.begin(), plan.thread_begin.end()));
  std::size_t item = 0;
  for (std::uint32_t s = 0; s < segments.size(); ++s) {
    std::uint64_t row = segments[s].rows.first;
    for (; item < plan.items.size() && plan.items[item].segment == s; ++item) {
      RC_ASSERT(plan.items[item].rows.first == row);
      RC_ASSERT(plan.items[item].rows.num_rows() > 0u);
      row = plan.items[item].rows.end;
    }
    RC_ASSERT(row == segments[s].rows.end);
  }
  RC_ASSERT(item == plan.items.size());
}

RC_GTEST_PROP(SplitPlan, GivesNoThreadMuchMoreThanItsShare, ()) {
  const auto segments = random_segments();
  const auto threads = *rc::gen::inRange<std::size_t>(1, 33);
  const SplitPlan plan = plan_split(segments, 4, threads);
  std::uint64_t total = 0;
  for (const Segment& segment : segments) total += segment.rows.num_rows();
  for (std::size_t t = 0; t < threads; ++t) {
    std::uint64_t rows = 0;
    for (std::size_t i = plan.thread_begin[t]; i < plan.thread_begin[t + 1]; ++i) {
      rows += plan.items[i].rows.num_rows();
    }
    // Cuts are rounded to chunks and short ends stay with their beginning.
    RC_ASSERT(rows <= total / threads + 6 * kChunkRows);
  }
}

TEST(SplitPlan, CutsOneLongSequenceForAllThreads) {
  const std::vector<Segment> segments = {{{0, 16384}, {0}}};
  const SplitPlan plan = plan_split(segments, 1, 4);
  ASSERT_EQ(plan.items.size(), 4u);
  for (const WorkItem& item : plan.items) EXPECT_EQ(item.rows.num_rows(), 4096u);
}

}  // namespace
}  // namespace kvarto
