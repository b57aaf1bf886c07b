// How the segments of a read plan are divided among threads. A pure function of
// lengths: equal inputs give equal work items, and therefore equal results bit
// for bit.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/read_plan.h"

namespace kvarto {

// Rows [rows.first, rows.end) of one segment.
struct WorkItem {
  std::uint32_t segment = 0;
  RowRange rows;
};

struct SplitPlan {
  std::vector<WorkItem> items;            // in the order of the segments
  std::vector<std::size_t> thread_begin;  // [num_threads + 1]: thread t runs items [t, t + 1)
};

// Gives every thread an equal share of rows x weight: long segments are cut at
// multiples of kChunkRows, short ones stay whole.
//   queries_per_kv_head: queries that one row serves in a segment with one
//   member
[[nodiscard]] SplitPlan plan_split(std::span<const Segment> segments,
                                   std::uint32_t queries_per_kv_head, std::size_t num_threads);

}  // namespace kvarto
