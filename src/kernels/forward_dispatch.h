// Which table of forward kernels runs: that of the instruction set which dispatch.h selects.

#pragma once

#include <vector>

#include "kernels/dispatch.h"
#include "kernels/forward_kernels.h"

namespace kvarto {

// Weights of one block, which is also the group of activations that share a scale.
[[nodiscard]] constexpr std::uint32_t weight_block(WeightType type) {
  if (static_cast<int>(type) < kNumDenseWeightTypes) return 1;
  return type >= WeightType::kQ4K ? 256 : 32;
}

// Requires: isa is supported.
[[nodiscard]] const ForwardKernels& forward_kernels(Isa isa);

// Every table that can run here, those that a better unit replaces too; for tests.
[[nodiscard]] std::vector<const ForwardKernels*> runnable_forward_kernels();

// That of active_kernels(). Errors: as there.
[[nodiscard]] Result<const ForwardKernels*> active_forward_kernels();

}  // namespace kvarto
