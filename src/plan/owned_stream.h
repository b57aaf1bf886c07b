// The streams that a layer group owns, with everything that sizes them on one rank: what the
// planner sums and what engines round up.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvarto/model_spec.h"
#include "kvarto/result.h"
#include "plan/ledger.h"

namespace kvarto {

// One stream of one layer group. The pointers live as long as the groups.
struct OwnedStream {
  const LayerGroup* group = nullptr;
  const Stream* stream = nullptr;
  std::size_t group_index = 0;
  std::uint64_t num_layers = 0;
  RowBytes whole;    // one row of one layer, all ranks
  RowBytes on_rank;  // the same on one rank of `tensor_parallel`
};

// Bytes of one row with the heads of one rank. Errors: kInvalidArgument naming the field whose
// bytes overflow.
[[nodiscard]] Result<RowBytes> rank_row_bytes(const Stream& stream, std::uint32_t tensor_parallel);

// The streams that `groups` own: borrowed ones are left out, streams of one step are not.
[[nodiscard]] Result<std::vector<OwnedStream>> owned_streams(std::span<const LayerGroup> groups,
                                                             std::uint32_t tensor_parallel);

// Rows of one layer and one sequence that must be held on one rank so that the sequence can grow to
// `request.context`: the peak, and what tokens in flight add (windows hold as many rows more,
// constant states one copy a token). Context parallelism divides rows, rounded up, but not states.
struct IdealRows {
  std::uint64_t live = 0;
  std::uint64_t in_flight = 0;
};
[[nodiscard]] IdealRows ideal_rows(const Stream& stream, const PlanRequest& request);

// The causes under which the parts of a row go into the ledger.
struct RowCauses {
  Cause payload = Cause::kPayload;
  Cause scales = Cause::kScales;
  Cause padding = Cause::kPadding;
};

// By purpose: index keys, states, summaries and masks are causes of their own, scales included.
[[nodiscard]] RowCauses row_causes(Purpose purpose);

// All parts of a row under one cause.
[[nodiscard]] inline RowCauses only_cause(Cause cause) { return {cause, cause, cause}; }

[[nodiscard]] LedgerSubject subject_of(const OwnedStream& owned);

// Rows of one layer and one sequence, how many sequences hold so many, and the ranks that share the
// whole.
struct RowCount {
  std::uint64_t rows = 0;
  std::uint64_t num_sequences = 1;
  std::uint64_t num_ranks = 1;
};

// Puts the bytes of rows in all layers into the ledger, replication apart. Errors: kInvalidArgument
// for an overflow.
[[nodiscard]] Status add_rows(Ledger& ledger, const OwnedStream& owned, const RowCount& count,
                              const RowCauses& causes);

// The product of layers, rows and sequences. Errors: kInvalidArgument naming the stream.
[[nodiscard]] Result<std::uint64_t> total_rows(const OwnedStream& owned, const RowCount& count);

}  // namespace kvarto
