// Many queries against rows that lie side by side: see wide_kernels.h.
//
// Lanes run along the elements, so that rows need no transposition; each sum is added up over its
// lanes at the end. A block of sums is 4 rows by as many queries as make the sums one vector.

#pragma once

namespace kvarto::KVARTO_ISA {

inline constexpr std::uint32_t kScoredRows = 4;
inline constexpr int kUnrolledRowSteps = 4;

// Which rows of the next chunk are brought near while a block of sums is computed.
struct RowPrefetch {
  const std::byte* rows[2];
  std::size_t step_bytes;
};

// Gives the rows of the next chunk to the blocks of sums in turn, evenly.
struct RowWalk {
  const WidePrefetch* next;
  std::uint32_t num_blocks;  // of sums, in all
  std::uint32_t rows_each;
  std::uint32_t blocks_each;
  std::size_t step_bytes;
};
KVARTO_INLINE RowWalk row_walk(const WidePrefetch& next, std::uint32_t num_blocks,
                               std::uint32_t num_steps) {
  RowWalk walk{&next, num_blocks, 0, 1, 0};
  if (next.base == nullptr || next.num_rows == 0) return walk;
  walk.rows_each = num_blocks < next.num_rows ? 2 : 1;
  walk.blocks_each = larger(1, static_cast<int>(num_blocks * walk.rows_each / next.num_rows));
  walk.step_bytes = (next.row_bytes + num_steps - 1) / num_steps;
  return walk;
}
// How many rows block `number` brings near: 0, 1 or 2.
KVARTO_INLINE int rows_to_prefetch(const RowWalk& walk, std::uint32_t number, RowPrefetch& soon) {
  if (walk.rows_each == 0 || number % walk.blocks_each != 0) return 0;
  const std::uint32_t first = number / walk.blocks_each * walk.rows_each;
  if (first >= walk.next->num_rows) return 0;
  const std::uint32_t last = walk.next->num_rows - 1;
  for (std::uint32_t i = 0; i < 2; ++i) {
    soon.rows[i] = walk.next->base + walk.next->offsets[first + i < last ? first + i : last];
  }
  soon.step_bytes = walk.step_bytes;
  return static_cast<int>(walk.rows_each);
}

// One block of sums.
struct RowBlock {
  const std::byte* rows[kScoredRows];
  const std::byte* q;  // of the first query
  std::size_t q_stride_bytes;
  std::uint32_t dim;
  float* scores;  // of the first query and row
  RowPrefetch soon;
  const std::byte* near;  // a row of the block after it, for the first-level cache
};

// Place `index` of the rows asked for, or of the nearest one.
KVARTO_INLINE const std::byte* scored_row(const WideRowScoreArgs& args, std::uint32_t index) {
  if (index >= args.end_row) index = args.end_row - 1;
  if (index < args.first_row) index = args.first_row;
  return args.rows + args.offsets[index];
}

// Calls block(RowBlock, number of rows to prefetch) for all queries and rows. Rows are taken by as
// many queries as stay in the first-level cache beside them.
template <int kQueries, int kStepElements, std::uint32_t kElementBytes, typename Block>
KVARTO_INLINE void each_row_block(const WideRowScoreArgs& args, const Block& block) {
  // 18 KiB at 576 elements.
  constexpr std::uint32_t kNearQueries = 32 / kElementBytes;
  const std::uint32_t num_queries = args.num_blocks * kWideQueries;
  const std::uint32_t first_row = args.first_row / kScoredRows * kScoredRows;
  const std::uint32_t num_groups = (args.end_row - first_row + kScoredRows - 1) / kScoredRows;
  const RowWalk walk = row_walk(args.next, num_groups * (num_queries / kQueries),
                                (args.dim + kStepElements - 1) / kStepElements);
  std::uint32_t number = 0;
  RowBlock part;
  part.q_stride_bytes = std::size_t{args.q_stride} * kElementBytes;
  part.dim = args.dim;
  for (std::uint32_t near = 0; near < num_queries; near += kNearQueries) {
    const std::uint32_t end = near + kNearQueries < num_queries ? near + kNearQueries : num_queries;
    for (std::uint32_t row = first_row; row < args.end_row; row += kScoredRows) {
      for (std::uint32_t i = 0; i < kScoredRows; ++i) {
        part.rows[i] = scored_row(args, row + i);
      }
      for (std::uint32_t query = near; query < end; query += kQueries) {
        part.q = reinterpret_cast<const std::byte*>(args.q) + query * part.q_stride_bytes;
        part.scores = args.scores + std::size_t{query} * kChunkRows + row;
        part.near = scored_row(args, row + kScoredRows + (query - near) / kQueries % kScoredRows);
        block(part, rows_to_prefetch(walk, number++, part.soon));
      }
    }
  }
}

// Lanes [kScoredRows i, kScoredRows (i + 1)) are the scores of query i.
template <int kQueries>
KVARTO_INLINE void store_row_scores(const Vec& sums, float* scores) {
  alignas(64) float lanes[kLanes];
  store(lanes, sums);
  KVARTO_UNROLL(kQueries, g) {
    __builtin_memcpy(scores + g * static_cast<int>(kChunkRows),
                     lanes + g * static_cast<int>(kScoredRows), kScoredRows * sizeof(float));
  };
}

}  // namespace kvarto::KVARTO_ISA
