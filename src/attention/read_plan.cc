#include "attention/read_plan.h"

#include <algorithm>
#include <utility>

namespace kvarto {
namespace {

// Sharing fewer rows than this costs more in merging than it saves in reading.
constexpr std::uint64_t kMinSharedRows = 64;

class SharedReads {
 public:
  SharedReads(std::span<const SequenceView> sequences, std::uint32_t rows_per_block,
              std::span<const RowRange> visible)
      : sequences_(sequences), rows_per_block_(rows_per_block), visible_(visible) {}

  // Plans the rows from `begin` (or where visibility begins) on for sequences
  // whose tables agree up to there. `members` is sorted by table.
  void plan(std::span<const std::uint32_t> members, std::uint64_t begin) {
    if (members.size() == 1) {
      add(members, {std::max(begin, visible_[members[0]].first), visible_[members[0]].end});
      return;
    }
    const std::uint64_t common = common_rows(members);
    std::uint64_t first = begin;
    std::uint64_t end = common;
    for (const std::uint32_t s : members) {
      first = std::max(first, visible_[s].first);
      end = std::min(end, visible_[s].end);
    }
    if (end < first + kMinSharedRows) {
      end = begin;
    } else {
      for (const std::uint32_t s : members) {
        add({&s, 1}, {std::max(begin, visible_[s].first), first});
      }
      add(members, {first, end});
    }
    plan_branches(members, std::max(begin, common), std::max(begin, end));
  }

  // In the order of sequences and rows: block ids, which differ from run to run, must not decide
  // how the work is divided.
  std::vector<Segment> take() {
    std::sort(segments_.begin(), segments_.end(), [](const Segment& a, const Segment& b) {
      return std::pair(a.members.front(), a.rows.first) <
             std::pair(b.members.front(), b.rows.first);
    });
    return std::move(segments_);
  }

 private:
  // Rows from 0 on that all members hold in the same blocks.
  std::uint64_t common_rows(std::span<const std::uint32_t> members) const {
    const SequenceView& a = sequences_[members.front()];
    const SequenceView& b = sequences_[members.back()];
    return (a.first_block + num_equal_blocks(a, b)) * rows_per_block_;
  }

  static std::uint64_t num_equal_blocks(const SequenceView& a, const SequenceView& b) {
    const std::size_t limit = std::min(a.block_table.size(), b.block_table.size());
    const auto first = a.block_table.begin();
    const auto last = first + static_cast<std::ptrdiff_t>(limit);
    return static_cast<std::uint64_t>(std::mismatch(first, last, b.block_table.begin()).first -
                                      first);
  }

  // Divides members by the block that holds row `fork` and plans the rows of
  // each division from `begin` on.
  void plan_branches(std::span<const std::uint32_t> members, std::uint64_t fork,
                     std::uint64_t begin) {
    std::size_t start = 0;
    for (std::size_t i = 1; i <= members.size(); ++i) {
      if (i < members.size() && is_same_branch(members[start], members[i], fork)) continue;
      const auto branch = members.subspan(start, i - start);
      if (branch.size() == members.size()) {  // tables without a difference
        for (const std::uint32_t s : branch) plan({&s, 1}, begin);
      } else {
        plan(branch, begin);
      }
      start = i;
    }
  }

  bool is_same_branch(std::uint32_t a, std::uint32_t b, std::uint64_t row) const {
    const std::uint64_t index = row / rows_per_block_ - sequences_[a].first_block;
    return index < sequences_[a].block_table.size() && index < sequences_[b].block_table.size() &&
           sequences_[a].block_table[index] == sequences_[b].block_table[index];
  }

  void add(std::span<const std::uint32_t> members, RowRange rows) {
    if (rows.num_rows() == 0) return;
    segments_.push_back({rows, {members.begin(), members.end()}});
    std::sort(segments_.back().members.begin(), segments_.back().members.end());
  }

  std::span<const SequenceView> sequences_;
  std::uint32_t rows_per_block_;
  std::span<const RowRange> visible_;
  std::vector<Segment> segments_;
};

}  // namespace

RowRange visible_rows(std::uint64_t position, const AttentionOptions& options) {
  RowRange rows{0, position + 1};
  if (options.window != 0 && rows.end > options.window) rows.first = rows.end - options.window;
  if (options.chunk != 0) {
    rows.first = std::max(rows.first, position / options.chunk * options.chunk);
  }
  return rows;
}

std::vector<Segment> plan_reads(std::span<const SequenceView> sequences,
                                std::uint32_t rows_per_block, std::span<const RowRange> visible) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t s = 0; s < sequences.size(); ++s) {
    if (visible[s].num_rows() != 0) order.push_back(s);
  }
  // Equal tables side by side; the first sequence number first, so that plans
  // are reproducible.
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const SequenceView& x = sequences[a];
    const SequenceView& y = sequences[b];
    if (x.first_block != y.first_block) return x.first_block < y.first_block;
    const auto [i, j] = std::mismatch(x.block_table.begin(), x.block_table.end(),
                                      y.block_table.begin(), y.block_table.end());
    if (i != x.block_table.end() && j != y.block_table.end()) return *i < *j;
    if (x.block_table.size() != y.block_table.size()) {
      return x.block_table.size() < y.block_table.size();
    }
    return a < b;
  });
  SharedReads reads(sequences, rows_per_block, visible);
  std::size_t start = 0;
  for (std::size_t i = 1; i <= order.size(); ++i) {
    const bool is_same =
        i < order.size() &&
        sequences[order[i]].first_block == sequences[order[start]].first_block &&
        sequences[order[i]].block_table.front() == sequences[order[start]].block_table.front();
    if (is_same) continue;
    reads.plan(std::span(order).subspan(start, i - start), 0);
    start = i;
  }
  std::vector<Segment> segments = reads.take();
  // Where blocks lie must not decide how work is split: order by sequence, not by block id.
  for (Segment& segment : segments) std::sort(segment.members.begin(), segment.members.end());
  std::sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) {
    if (a.members != b.members) return a.members < b.members;
    return a.rows.first < b.rows.first;
  });
  return segments;
}

}  // namespace kvarto
