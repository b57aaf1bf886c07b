// Running mean squares of what is written into a stream: what decides whether arithmetic in 16 bits
// is exact enough (attention/half_bound.h).

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "kvarto/cache_view.h"

namespace kvarto {

// For every element of every head, the mean square of the rows written, in the order of writing,
// where a row counts 1 / kRows and those before it fade by 1 - 1 / kRows; and the largest value
// that this mean has had. The peak never falls: rows that have left the cache still count. NaN
// stays.
//
// Copies of a row or a fork change nothing. `add` may run concurrently with itself and with all
// else: peaks are never lost, of the fading means only those of one of the writers are kept.
class ElementSquares {
 public:
  // An element that is in `peak` only once may be so much larger than its root: sqrt(kRows) times.
  static constexpr std::uint32_t kRows = 32;

  ElementSquares() = default;
  ElementSquares(std::uint32_t heads, std::uint32_t width);

  // Rows of f32, f16 or bf16 without gaps, [num_rows][heads][width], at any address.
  struct Rows {
    const std::byte* begin = nullptr;
    Element element = Element::kF32;
    std::uint64_t count = 0;
  };
  void add(const Rows& rows, const KernelTable& kernels);
  // Rows of unknown contents were written.
  void forget();

  [[nodiscard]] bool is_kept() const { return !peaks_.empty(); }
  // What attention needs of them, for rows written so far. Valid as long as this object.
  [[nodiscard]] SquaresView view() const;
  [[nodiscard]] std::uint64_t size_bytes() const {
    return (peaks_.capacity() + means_.capacity()) * sizeof(float);
  }

 private:
  void add_elements(const Rows& rows, std::size_t first, std::size_t count,
                    const KernelTable& kernels);

  std::size_t row_elements_ = 0;
  std::uint64_t num_rows_ = 0;
  std::vector<float> means_;  // [heads][width]
  std::vector<float> peaks_;
};

}  // namespace kvarto
