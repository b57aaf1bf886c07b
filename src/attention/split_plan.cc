#include "attention/split_plan.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace kvarto {
namespace {

// Cost of reading a row, in units of the arithmetic of one query on it: a core
// streams 16 bits from memory in about the time of 8 queries (12.5 cycles a
// line; 2 multiply-adds a cycle).
constexpr double kReadCost = 8;
// A cut closer than this to the end of a segment is not worth a merge.
constexpr std::uint64_t kMinPieceRows = 2 * kChunkRows;

}  // namespace

SplitPlan plan_split(std::span<const Segment> segments, std::uint32_t queries_per_kv_head,
                     std::size_t num_threads) {
  const auto row_cost = [&](const Segment& segment) {
    return std::max(kReadCost, static_cast<double>(segment.members.size()) * queries_per_kv_head);
  };
  double total = 0;
  for (const Segment& s : segments) total += row_cost(s) * static_cast<double>(s.rows.num_rows());
  const double share = total / static_cast<double>(num_threads);

  SplitPlan plan;
  plan.thread_begin.push_back(0);
  double given = 0;  // cost of all items so far
  for (std::uint32_t index = 0; index < segments.size(); ++index) {
    const double cost = row_cost(segments[index]);
    RowRange rest = segments[index].rows;
    while (rest.num_rows() != 0) {
      const double limit = share * static_cast<double>(plan.thread_begin.size());
      const bool is_last_thread = plan.thread_begin.size() == num_threads;
      const double room = std::max(0.0, limit - given) / cost;
      std::uint64_t end = rest.end;
      if (!is_last_thread && room < static_cast<double>(rest.num_rows())) {
        const std::uint64_t cut = (rest.first + static_cast<std::uint64_t>(room) + kChunkRows / 2) /
                                  kChunkRows * kChunkRows;
        // Too little before the cut: all of it to the next thread. Too little
        // after: to this one.
        end = cut < rest.first + kMinPieceRows ? rest.first : cut;
        if (end + kMinPieceRows > rest.end) end = rest.end;
        if (end == rest.end && cut < rest.first + kMinPieceRows &&
            room * 2 < static_cast<double>(rest.num_rows())) {
          end = rest.first;
        }
      }
      if (end != rest.first) {
        plan.items.push_back({index, {rest.first, end}});
        given += cost * static_cast<double>(end - rest.first);
        rest.first = end;
      }
      if (!is_last_thread && (rest.num_rows() != 0 || given >= limit)) {
        plan.thread_begin.push_back(plan.items.size());
      }
    }
  }
  plan.thread_begin.resize(num_threads + 1, plan.items.size());
  return plan;
}

}  // namespace kvarto
