// How many rows all queries of a causal prefill see, without walking over the positions.
//
// Rows are born in order, one every m tokens, so that what a query sees depends on the number b of
// rows born before it, and each b stands for m positions. The sum over positions is therefore a
// sum over b, which is piecewise linear: growing, then periodic. Tests compare it with the walk.

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "plan/step_cost.h"

namespace kvarto {
namespace {

constexpr std::uint64_t kNoCap = std::numeric_limits<std::uint64_t>::max();

// Sum of min(b, cap) over b = 0 .. end - 1.
double sum_of_min(std::uint64_t end, std::uint64_t cap) {
  const auto growing = static_cast<double>(std::min(end, cap));
  const double flat = static_cast<double>(end) - growing;
  return growing * (growing - 1.0) / 2.0 + (flat == 0.0 ? 0.0 : flat * static_cast<double>(cap));
}

// What a query sees of a stream whose first `b` rows are born: all of them up to `count` rows,
// then `count` rows and those that complete an aligned group of `align` rows before them; never
// more than are resident.
struct Visible {
  std::uint64_t resident_cap = kNoCap;
  std::uint64_t count = kNoCap;
  std::uint64_t align = 1;

  [[nodiscard]] std::uint64_t rows(std::uint64_t b) const {
    const std::uint64_t wanted = b < count ? b : count + (b - count) % align;
    return std::min(wanted, resident_cap);
  }

  // Sum of min(resident_cap, count + j) over j = 0 .. end - 1.
  [[nodiscard]] double sum_above_count(std::uint64_t end) const {
    if (resident_cap <= count) return static_cast<double>(end) * static_cast<double>(resident_cap);
    return static_cast<double>(end) * static_cast<double>(count) +
           sum_of_min(end, resident_cap - count);
  }

  // Sum of rows(b) over b = 0 .. end - 1.
  [[nodiscard]] double sum(std::uint64_t end) const {
    double total = sum_of_min(std::min(end, count), resident_cap);
    if (end > count) {
      const std::uint64_t beyond = end - count;
      total += static_cast<double>(beyond / align) * sum_above_count(align) +
               sum_above_count(beyond % align);
    }
    return total;
  }
};

// Sum over positions t = 1 .. tokens of what is visible when floor(t / m) rows are born.
double sum_over_positions(std::uint64_t tokens, std::uint64_t m, const Visible& visible) {
  const std::uint64_t born = tokens / m;
  return static_cast<double>(m) * visible.sum(born) +
         static_cast<double>(tokens % m + 1) * static_cast<double>(visible.rows(born));
}

// The most rows that are resident at any time; kNoCap without a bound.
std::uint64_t resident_cap(const Stream& stream) {
  const Lifetime& lifetime = stream.lifetime;
  switch (lifetime.kind) {
    case Lifetime::Kind::kWindow:
    case Lifetime::Kind::kKept:
      return lifetime.tokens;
    case Lifetime::Kind::kTtl:
      return ceil_div(lifetime.tokens, stream.tokens_per_row);
    default:
      return kNoCap;
  }
}

Visible visible_rows(const Stream& stream) {
  const Access& access = stream.access;
  Visible visible{.resident_cap = resident_cap(stream)};
  switch (access.kind) {
    case Access::Kind::kWindow:
      visible.count = access.count;
      visible.align = std::max<std::uint64_t>(access.align_rows, 1);
      break;
    case Access::Kind::kTopK:
      visible.count = access.count;
      visible.align = std::max<std::uint64_t>(access.align_rows, 1);
      break;
    case Access::Kind::kBlocks:
      visible.count = access.count;
      break;
    case Access::Kind::kNone:
      visible.resident_cap = 0;
      break;
    case Access::Kind::kAll:
    case Access::Kind::kRatio:
      break;
  }
  return visible;
}

// Positions t in [0, end) with t mod m < limit.
double count_below(std::uint64_t end, std::uint64_t m, std::uint64_t limit) {
  return static_cast<double>(end / m) * static_cast<double>(limit) +
         static_cast<double>(std::min(end % m, limit));
}

// All resident rows but those that cover one of the newest `skip` tokens, over t = 1 .. tokens.
double sum_without_newest(std::uint64_t tokens, std::uint64_t m, std::uint64_t skip,
                          std::uint64_t cap) {
  if (tokens <= skip) return 0.0;
  // Until the first row dies, after `cap` x m tokens, a query sees floor((t - skip) / m) rows.
  const auto saturation = checked_mul(cap, m);
  if (!saturation || tokens < *saturation) {
    return sum_over_positions(tokens - skip, m, Visible{});
  }
  const std::uint64_t start = std::max(*saturation, skip);
  double total = start > skip ? sum_over_positions(start - 1 - skip, m, Visible{}) : 0.0;
  // Then `cap` rows less the skipped ones: floor(skip / m), and one more early in each group.
  const std::uint64_t skipped = skip / m;
  const auto late = static_cast<double>(cap - std::min(cap, skipped));
  const auto early = static_cast<double>(cap - std::min(cap, skipped + 1));
  const double num_early = count_below(tokens + 1, m, skip % m) - count_below(start, m, skip % m);
  const double num_late = static_cast<double>(tokens + 1 - start) - num_early;
  return total + num_early * early + num_late * late;
}

}  // namespace

double prefill_rows_seen(const Stream& stream, std::uint64_t tokens) {
  const Visible visible = visible_rows(stream);
  switch (stream.lifetime.kind) {
    case Lifetime::Kind::kStep:
      return 0.0;
    case Lifetime::Kind::kConstant:
      return visible.rows(1) == 0 ? 0.0 : static_cast<double>(tokens);
    case Lifetime::Kind::kChunk: {
      const std::uint64_t chunk = stream.lifetime.tokens;
      return static_cast<double>(tokens / chunk) * sum_over_positions(chunk, 1, visible) +
             sum_over_positions(tokens % chunk, 1, visible);
    }
    default:
      break;
  }
  const std::uint64_t m = stream.tokens_per_row;
  const std::uint64_t counted = tokens - std::min(tokens, stream.birth_delay_tokens);
  if (stream.access.kind == Access::Kind::kAll && stream.access.skip_tokens != 0) {
    return sum_without_newest(counted, m, stream.access.skip_tokens, visible.resident_cap);
  }
  return sum_over_positions(counted, m, visible);
}

}  // namespace kvarto
