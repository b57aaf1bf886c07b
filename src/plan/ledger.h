// The ledger under construction: every byte goes in under a cause, and the total is their sum.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/checked.h"
#include "kvarto/plan.h"

namespace kvarto {

// Whose bytes an entry counts: one stream of one layer group. The views must outlive the ledger.
struct LedgerSubject {
  std::string_view stream;
  std::string_view architecture;
  std::uint32_t layers = 0;
  std::size_t group = 0;  // tells groups of equal architecture apart while adding
};

// Bytes of one rank of `ranks` beside those of all ranks together.
struct RankBytes {
  std::uint64_t on_rank = 0;
  std::uint64_t whole = 0;
  std::uint64_t ranks = 1;
};

// Not thread-safe; one owner.
class Ledger {
 public:
  // Adds `bytes` under `cause`; zero bytes leave no entry.
  void add(Cause cause, const LedgerSubject& subject, std::uint64_t bytes);

  // Adds bytes of one rank: what exceeds its share of the whole (rounded down) is replication, the
  // rest stays under `cause`.
  void add_share(Cause cause, const LedgerSubject& subject, const RankBytes& bytes);

  // Moves the entries into `plan` and sets its bytes to their sum. Entries of equal cause, stream
  // and architecture become one, with the layers of all their groups. Errors: kInvalidArgument if
  // the sum overflowed.
  [[nodiscard]] Status finish(EnginePlan& plan) &&;

 private:
  struct Line {
    Cause cause{};
    LedgerSubject subject;
    std::uint64_t bytes = 0;
  };
  std::vector<Line> lines_;
  CheckedSum total_;
};

}  // namespace kvarto
