// Which arithmetic a call runs in, and with which kernels.

#pragma once

#include "attention/call_check.h"
#include "kernels/kernels.h"
#include "kvarto/attention.h"
#include "kvarto/result.h"

namespace kvarto {

struct ChosenArith {
  Arith arith = Arith::kF32;  // never kAuto
  const KernelTable* kernels = nullptr;
};

enum class Phase : std::uint8_t { kDecode, kPrefill };

// The arithmetic that `options` ask for over `view`; `selected` are the kernels of f32. Errors:
// kUnsupported, saying what is missing.
[[nodiscard]] Result<ChosenArith> choose_arith(const AttentionOptions& options,
                                               const CacheView& view, std::uint32_t num_q_heads,
                                               const KernelTable& selected, Phase phase);

// Checks a call whose shape is checked against the bound of its arithmetic. Errors: kUnsupported.
[[nodiscard]] Status check_arith(Arith arith, const CallShape& call, const PassShape& shape);

}  // namespace kvarto
