#include "attention/partial_result.h"

#include <algorithm>
#include <array>
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

// A part of NaN scores has a maximum that never moved and a sum of NaN, which must not be lost.
bool has_rows(const PartialResult& part) { return part.maximum != -INFINITY || total(part) != 0; }

// exp2(x - largest) where nothing at all is nothing, not NaN.
double relative(double x, double largest) {
  if (x == kNothing) return 0.0;
  return x == largest ? 1.0 : std::exp2(x - largest);
}

double share(const PartialResult& part, double largest) {
  if (double{part.maximum} == largest) return total(part);
  return has_rows(part) ? std::exp2(double{part.maximum} - largest) * total(part) : 0.0;
}

constexpr std::size_t kPartsAtOnce = 16;

}  // namespace

float merge_results(const KernelTable& kernels, std::span<const PartialResult> parts,
                    std::optional<float> sink, std::span<float> out) {
  const double sink_score = sink.has_value() ? double{*sink} * double{kLog2E} : kNothing;
  double largest = sink_score;
  for (const PartialResult& part : parts) largest = std::max(largest, double{part.maximum});
  double z = relative(sink_score, largest);
  for (const PartialResult& part : parts) z += share(part, largest);

  // Parts go to the kernel a few at a time; the first few are all in nearly every call.
  std::array<const float*, kPartsAtOnce> accs;
  std::array<float, kPartsAtOnce> weights;
  CombineArgs args;
  args.parts = accs.data();
  args.weights = weights.data();
  args.dim = static_cast<std::uint32_t>(out.size());
  args.out = out.data();
  bool is_first = true;
  for (std::size_t begin = 0; is_first || begin < parts.size(); begin += kPartsAtOnce - 1) {
    args.num_parts = 0;
    if (!is_first) {
      accs[0] = out.data();
      weights[args.num_parts++] = 1.0f;
    }
    const std::size_t end = std::min(parts.size(), begin + kPartsAtOnce - 1);
    for (std::size_t i = begin; i < end; ++i) {
      if (!has_rows(parts[i])) continue;
      accs[args.num_parts] = parts[i].acc;
      weights[args.num_parts++] =
          static_cast<float>(relative(double{parts[i].maximum}, largest) / z);
    }
    kernels.combine(args);
    is_first = false;
  }
  if (z == 0) return -std::numeric_limits<float>::infinity();
  return static_cast<float>((largest + std::log2(z)) * kLn2);
}

}  // namespace kvarto
