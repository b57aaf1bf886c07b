// Joining partial attention results of one query by their log-sum-exp.

#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernels/kernels.h"

namespace kvarto {

// The state of one query over some rows.
struct PartialResult {
  const float* acc = nullptr;  // [dim]
  const float* sum = nullptr;  // [kPadFloats]
  float maximum = 0;           // log2 units
};

// Writes the softmax average over the rows of all parts and returns its LSE
// (natural logarithm). `sink` takes part in the denominator alone. Without
// parts: 0, and the sink or -infinity.
float merge_results(const KernelTable& kernels, std::span<const PartialResult> parts,
                    std::optional<float> sink, std::span<float> out);

}  // namespace kvarto
