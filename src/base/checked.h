// Integer arithmetic on sizes: rounding, and products and sums that report overflow.

#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace kvarto {

[[nodiscard]] constexpr std::uint64_t ceil_div(std::uint64_t value, std::uint64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

// Smallest multiple of `multiple` that is at least `value`. Requires: it fits 64 bits.
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

[[nodiscard]] inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

[[nodiscard]] inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// A sum of products that remembers whether it overflowed: check once, at the end.
class CheckedSum {
 public:
  void add(std::uint64_t value) {
    if (__builtin_add_overflow(total_, value, &total_)) has_overflow_ = true;
  }
  void add_product(std::uint64_t a, std::uint64_t b) {
    std::uint64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) has_overflow_ = true;
    add(product);
  }
  // Requires: !has_overflow().
  [[nodiscard]] std::uint64_t total() const { return total_; }
  [[nodiscard]] bool has_overflow() const { return has_overflow_; }

 private:
  std::uint64_t total_ = 0;
  bool has_overflow_ = false;
};

}  // namespace kvarto
