// Which rows a decode step reads, and for whom: runs of one block table with
// the sequences that share them. Pure functions of tables and lengths.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvarto/attention.h"

namespace kvarto {

// Half-open range of row numbers.
struct RowRange {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t num_rows() const { return end > first ? end - first : 0; }
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// The rows that a query at `position` sees.
[[nodiscard]] RowRange visible_rows(std::uint64_t position, const AttentionOptions& options);

// Rows that are read once for all `members`.
struct Segment {
  RowRange rows;                       // not empty
  std::vector<std::uint32_t> members;  // sequence numbers; the table of the first one is read
};

// Segments that cover, for every sequence s, exactly the rows visible[s].
// Sequences whose tables begin with equal block ids share the rows that they
// have in common, level by level for forks of forks.
[[nodiscard]] std::vector<Segment> plan_reads(std::span<const SequenceView> sequences,
                                              std::uint32_t rows_per_block,
                                              std::span<const RowRange> visible);

}  // namespace kvarto
