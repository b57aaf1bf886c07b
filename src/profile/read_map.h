// Where in memory a step's reads lie, and the bytes beside them.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvarto/profile.h"

namespace kvarto {

// One stream of one layer with the tables and runs of a step.
struct StreamReads {
  StreamView stream;
  std::uint32_t rows_per_block = 0;
  std::span<const SequenceView> sequences;
  std::span<const ReadRun> runs;
  std::uint64_t row_bytes = 0;  // of all heads and fields; 0: those of `stream` alone
};

// Fills in axes, line utilisation, runs and jumps.
void describe_reads(const StreamReads& reads, StreamLayoutReport& report);

// Overwrites every byte of every row that the step does not read, in all `num_blocks` blocks, with
// 0xFF: a NaN in every type. `base` is the stream's storage, writable. Returns the rows
// overwritten. Requires: no sequence shares blocks.
std::uint64_t poison_unread(const StreamReads& reads, std::byte* base, std::uint64_t num_blocks);

}  // namespace kvarto
