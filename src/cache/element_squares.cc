#include "cache/element_squares.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

namespace kvarto {
namespace {

// Elements that are followed at once, in L1.
constexpr std::size_t kSlab = 256;

void raise(float& peak, float value) {
  std::atomic_ref<float> shared(peak);
  float seen = shared.load(std::memory_order_relaxed);
  // A NaN is larger than all.
  while (!std::isnan(seen) && !(value <= seen)) {
    if (shared.compare_exchange_weak(seen, value, std::memory_order_relaxed)) return;
  }
}

}  // namespace

ElementSquares::ElementSquares(std::uint32_t heads, std::uint32_t width)
    : row_elements_(std::size_t{heads} * width), means_(row_elements_), peaks_(row_elements_) {}

void ElementSquares::add(const Rows& rows, const KernelTable& kernels) {
  for (std::size_t first = 0; first < row_elements_; first += kSlab) {
    add_elements(rows, first, std::min(kSlab, row_elements_ - first), kernels);
  }
  std::atomic_ref<std::uint64_t>(num_rows_).fetch_add(rows.count, std::memory_order_relaxed);
}

void ElementSquares::add_elements(const Rows& rows, std::size_t first, std::size_t count,
                                  const KernelTable& kernels) {
  constexpr float kShare = 1.0f / kRows;
  const std::size_t element_bytes = rows.element == Element::kF32 ? 4 : 2;
  const ToF32Function to_f32 = kernels.to_f32[static_cast<std::size_t>(rows.element)];
  float x[kSlab];
  float mean[kSlab];
  float peak[kSlab] = {};
  for (std::size_t i = 0; i < count; ++i) {
    mean[i] = std::atomic_ref<float>(means_[first + i]).load(std::memory_order_relaxed);
  }
  for (std::uint64_t row = 0; row < rows.count; ++row) {
    to_f32(rows.begin + (row * row_elements_ + first) * element_bytes, x, count);
    for (std::size_t i = 0; i < count; ++i) {
      mean[i] += (x[i] * x[i] - mean[i]) * kShare;
      peak[i] = mean[i] <= peak[i] ? peak[i] : mean[i];  // NaN is kept by the mean
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::atomic_ref<float>(means_[first + i]).store(mean[i], std::memory_order_relaxed);
    raise(peaks_[first + i], std::isnan(mean[i]) ? mean[i] : peak[i]);
  }
}

void ElementSquares::forget() {
  for (float& peak : peaks_) raise(peak, std::numeric_limits<float>::infinity());
}

SquaresView ElementSquares::view() const {
  if (!is_kept()) return {};
  // The mean began at 0, so that the first rows weigh less than all later ones together; after n
  // rows all weights add up to 1 - (1 - 1/kRows)^n.
  auto& num_rows = const_cast<std::uint64_t&>(num_rows_);
  const std::uint64_t n = std::atomic_ref<std::uint64_t>(num_rows).load(std::memory_order_relaxed);
  const double weight = 1 - std::pow(1 - 1.0 / kRows, static_cast<double>(n));
  return {.peaks = peaks_.data(), .weight = static_cast<float>(weight), .max_rows = kRows};
}

}  // namespace kvarto
