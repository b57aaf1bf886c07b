#include "attention/top_k.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <numeric>

namespace kvarto {
namespace {

// Digits of a key, most significant first: 11, 11 and 10 bits.
constexpr int kDigitBits = 11;
constexpr std::size_t kNumDigits = std::size_t{1} << kDigitBits;
// Counters of neighbours apart: scores of one call share few digits, and a counter that was just
// written waits for the store.
constexpr std::size_t kNumCounters = 4;
using Counters = std::array<std::array<std::uint32_t, kNumDigits>, kNumCounters>;

// Numbers in the order of the scores: NaN is 0, and so below -infinity.
std::uint32_t key_of(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);  // -0 becomes 0
  const std::uint32_t sign = 0u - (bits >> 31);
  const std::uint32_t key = bits ^ (sign | 0x80000000u);
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0 : key;
}

// The score of a key, NaN of 0.
float score_of(std::uint32_t key) {
  const std::uint32_t sign = 0u - (~key >> 31);
  const std::uint32_t bits = key ^ (sign | 0x80000000u);
  return std::bit_cast<float>(key == 0 ? 0x7fc00000u : bits);
}

struct Threshold {
  std::uint32_t digit = 0;
  std::size_t num_above = 0;  // keys with a larger digit
};

// The largest digit that at least `wanted` keys reach.
Threshold find_digit(std::span<const std::uint32_t> keys, int shift, std::size_t wanted) {
  thread_local Counters counters;
  const std::size_t num_counters = keys.size() < kNumDigits ? 1 : kNumCounters;
  for (std::size_t c = 0; c < num_counters; ++c) counters[c].fill(0);
  const std::size_t whole = num_counters == 1 ? 0 : keys.size() / kNumCounters * kNumCounters;
  constexpr std::uint32_t kMask = kNumDigits - 1;
  for (std::size_t i = 0; i < whole; i += kNumCounters) {
    for (std::size_t c = 0; c < kNumCounters; ++c) ++counters[c][keys[i + c] >> shift & kMask];
  }
  for (std::size_t i = whole; i < keys.size(); ++i) ++counters[0][keys[i] >> shift & kMask];
  Threshold found;
  for (std::size_t digit = kNumDigits; digit-- > 0;) {
    std::size_t count = 0;
    for (std::size_t c = 0; c < num_counters; ++c) count += counters[c][digit];
    if (found.num_above + count >= wanted) {
      found.digit = static_cast<std::uint32_t>(digit);
      return found;
    }
    found.num_above += count;
  }
  return found;
}

// Keeps the keys with this digit; returns how many.
std::size_t keep_digit(std::span<const std::uint32_t> keys, int shift, std::uint32_t digit,
                       std::uint32_t* kept) {
  constexpr std::uint32_t kMask = kNumDigits - 1;
  std::size_t size = 0;
  for (const std::uint32_t key : keys) {
    kept[size] = key;
    size += (key >> shift & kMask) == digit ? 1 : 0;
  }
  return size;
}

// The key that `wanted` keys reach, and how many of the keys equal to it are among them.
struct LastKey {
  std::uint32_t key = 0;
  std::size_t num_equal = 0;
};

// Requires: 0 < wanted <= keys.size(). `scratch` has room for one more than the keys.
LastKey find_last(std::span<const std::uint32_t> keys, std::size_t wanted, std::uint32_t* scratch) {
  LastKey last{0, wanted};
  for (const int shift : {21, 10, 0}) {
    // The lowest digit has ten bits; its eleventh is the same in all keys that are left.
    const Threshold found = find_digit(keys, shift, last.num_equal);
    last.num_equal -= found.num_above;
    last.key |= found.digit << shift;
    if (shift != 0) keys = {scratch, keep_digit(keys, shift, found.digit, scratch)};
  }
  return last;
}

// A sample tells about where the last score lies: what is surely below need not be sorted.
constexpr std::size_t kSampleStep = 64;
constexpr std::size_t kMinSampled = 8192;  // scores; below it a sample costs more than it saves

// The numbers of scores that reach a bound which at least `wanted` of them reach, ascending; all
// numbers where the sample finds no such bound.
std::span<const std::uint32_t> find_candidates(std::span<const float> scores, std::size_t wanted,
                                               TopKScratch& scratch) {
  const std::size_t count = scores.size();
  scratch.candidates.resize(count + 1);
  std::uint32_t* candidates = scratch.candidates.data();
  if (count >= kMinSampled && wanted <= count / 8) {
    std::vector<std::uint32_t>& sample = scratch.keys;
    sample.clear();
    for (std::size_t i = 0; i < count; i += kSampleStep) sample.push_back(key_of(scores[i]));
    // Twice as many as wanted, and some for short samples: too few are hardly ever found.
    const std::size_t rank = wanted * 2 / kSampleStep + 16;
    std::nth_element(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(rank),
                     sample.end(), std::greater<>());
    const float bound = score_of(sample[rank]);
    std::size_t size = 0;
    for (std::size_t i = 0; i < count; ++i) {
      candidates[size] = static_cast<std::uint32_t>(i);
      size += scores[i] >= bound ? 1 : 0;
    }
    if (size >= wanted) return {candidates, size};
  }
  std::iota(candidates, candidates + count, 0u);
  return {candidates, count};
}

}  // namespace

void select_largest(std::span<const float> scores, std::span<std::uint32_t> out,
                    TopKScratch& scratch) {
  if (out.size() == scores.size()) {
    std::iota(out.begin(), out.end(), 0u);
    return;
  }
  if (out.empty()) return;
  const std::span<const std::uint32_t> candidates = find_candidates(scores, out.size(), scratch);
  const std::size_t count = candidates.size();
  scratch.keys.resize(2 * count + 1);
  std::uint32_t* keys = scratch.keys.data();
  for (std::size_t i = 0; i < count; ++i) keys[i] = key_of(scores[candidates[i]]);
  LastKey last = find_last({keys, count}, out.size(), keys + count);
  // Of the rows with the last key the first ones are taken.
  std::size_t size = 0;
  for (std::size_t i = 0; i < count && size < out.size(); ++i) {
    const bool is_equal = keys[i] == last.key && last.num_equal != 0;
    out[size] = candidates[i];
    last.num_equal -= is_equal ? 1 : 0;
    size += keys[i] > last.key || is_equal ? 1 : 0;
  }
}

}  // namespace kvarto
