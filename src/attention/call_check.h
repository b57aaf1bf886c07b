// Checks what callers hand to attention and turns it into the shape that the
// passes use.

#pragma once

#include <cstddef>
#include <string_view>

#include "attention/head_pass.h"
#include "kvarto/attention.h"
#include "kvarto/result.h"

namespace kvarto {

// The parts of a call that decode and prefill have in common.
struct CallShape {
  const CacheView* view = nullptr;
  const AttentionOptions* options = nullptr;
  std::uint32_t num_q_heads = 0;
  std::uint64_t num_queries = 0;  // tokens, all sequences
  const float* q = nullptr;
  std::size_t q_size = 0;  // floats of q, out and lse as given
  std::size_t out_size = 0;
  std::size_t lse_size = 0;
};

// Errors: kInvalidArgument, kUnsupported; the message names the field.
[[nodiscard]] Result<PassShape> check_call(const CallShape& call, const KernelTable& kernels);

// Checks that `sequence` (number `index`) holds the rows from `first_row` to
// its end.
[[nodiscard]] Status check_sequence(const CacheView& view, std::size_t index,
                                    std::uint64_t first_row);

// Checks the selections of a decode against its view and options; the rows that they name are those
// of check_sequence() from the first one on.
[[nodiscard]] Status check_selections(const DecodeCall& call);

// Bytes of one row of K and one of V, all heads; those of V are 0 where they lie in the row of K.
struct RowPairBytes {
  std::uint64_t k = 0;
  std::uint64_t v = 0;
};
[[nodiscard]] RowPairBytes row_pair_bytes(const CacheView& view);

// "hardware" for head-major layouts, "generic" for rows.
[[nodiscard]] std::string_view layout_of(const CacheView& view);

inline constexpr float kLog2E = 1.44269504f;
inline constexpr double kLn2 = 0.693147180559945309;

}  // namespace kvarto
