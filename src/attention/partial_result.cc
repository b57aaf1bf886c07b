#include "attention/partial_result.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/call_check.h"

namespace kvarto {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

double total(const PartialResult& part) {
  double sum = 0;
  for (std::uint32_t i = 0; i < kPadFloats; ++i) sum += double{part.sum[i]};
  return sum;
}

// exp2(x - largest) where nothing at all is nothing, not NaN.
double relative(double x, double largest) { return x == kNothing ? 0.0 : std::exp2(x - largest); }

}  // namespace

float merge_results(const KernelTable& kernels, std::span<const PartialResult> parts,
                    std::optional<float> sink, std::span<float> out) {
  // Sums of NaN belong to a maximum that never moved; they must not be lost.
  const auto has_rows = [](double maximum, double sum) { return maximum != kNothing || sum != 0; };
  double largest = sink.has_value() ? double{*sink} * double{kLog2E} : kNothing;
  for (const PartialResult& part : parts) largest = std::max(largest, double{part.maximum});
  double z = sink.has_value() ? relative(double{*sink} * double{kLog2E}, largest) : 0.0;
  std::vector<const float*> accs;
  std::vector<float> weights;
  for (const PartialResult& part : parts) {
    const double sum = total(part);
    if (!has_rows(double{part.maximum}, sum)) continue;
    z += std::exp2(double{part.maximum} - largest) * sum;
  }
  for (const PartialResult& part : parts) {
    if (!has_rows(double{part.maximum}, total(part))) continue;
    accs.push_back(part.acc);
    weights.push_back(static_cast<float>(std::exp2(double{part.maximum} - largest) / z));
  }
  CombineArgs args;
  args.parts = accs.data();
  args.weights = weights.data();
  args.num_parts = static_cast<std::uint32_t>(accs.size());
  args.dim = static_cast<std::uint32_t>(out.size());
  args.out = out.data();
  kernels.combine(args);
  if (z == 0) return -std::numeric_limits<float>::infinity();
  return static_cast<float>((largest + std::log2(z)) * kLn2);
}

}  // namespace kvarto
