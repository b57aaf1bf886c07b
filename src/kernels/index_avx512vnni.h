// Index scores in 16-bit integers: vpdpwssd multiplies two elements of 16 heads with two of a key.

#pragma once

#include "kernels/index_avx512.h"

namespace kvarto::KVARTO_ISA {

inline void fill_e4m3_int16(const FillIndexArgs& args) {
  if (args.dim % 32 != 0) return fill_e4m3_int16_plain(args);
  auto* out = static_cast<std::int16_t*>(args.out);
  for (std::uint32_t row = 0; row < args.count; ++row) {
    const std::byte* codes = args.codes + row * args.stride_bytes;
    __m256i largest = _mm256_setzero_si256();
    for (std::uint32_t d = 0; d < args.dim; d += 32, out += 32) {
      const __m256i part = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + d));
      _mm512_storeu_si512(out, e4m3_as_eighths(part));
      largest = larger_codes(largest, part);
    }
    args.units[row] = nan_if_any(largest, 0.125f);
  }
}

// The instruction itself: GCC 12 copies accumulators of the intrinsic from register to register.
KVARTO_INLINE __m512i add_pairs(__m512i acc, __m512i a, __m512i b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
}

KVARTO_INLINE __m512i pair_of(const std::int16_t* key) {
  std::int32_t pair;
  __builtin_memcpy(&pair, key, sizeof pair);
  return _mm512_set1_epi32(pair);
}

template <int kVecs, int kRows>
KVARTO_INLINE void index_part_int16(const IndexScoreArgs& args, std::uint32_t head,
                                    std::uint32_t row, Vec* partial) {
  const std::uint32_t pairs = (args.dim + 1) / 2;
  const auto* q = reinterpret_cast<const std::int32_t*>(args.q) + head;
  const auto* keys = static_cast<const std::int16_t*>(args.keys) + std::size_t{row} * pairs * 2;
  __m512i acc[kRows * kVecs];
  KVARTO_UNROLL(kRows * kVecs, i) { acc[i] = _mm512_setzero_si512(); };
  for (std::size_t d = 0; d < pairs; ++d, q += args.num_padded) {
    __m512i queries[kVecs];
    KVARTO_UNROLL(kVecs, v) { queries[v] = _mm512_loadu_si512(q + v * 16); };
    KVARTO_UNROLL(kRows, r) {
      const __m512i key = pair_of(keys + (std::size_t{r} * pairs + d) * 2);
      KVARTO_UNROLL(kVecs, v) {
        acc[r * kVecs + v] = add_pairs(acc[r * kVecs + v], queries[v], key);
      };
    };
  }
  KVARTO_UNROLL(kVecs, v) {
    const __m512 weight = _mm512_loadu_ps(args.weights + head + v * 16);
    KVARTO_UNROLL(kRows, r) {
      const __m512i positive = _mm512_max_epi32(acc[r * kVecs + v], _mm512_setzero_si512());
      partial[row + r] = _mm512_fmadd_ps(weight, _mm512_cvtepi32_ps(positive), partial[row + r]);
    };
  };
}

template <int kVecs>
KVARTO_INLINE void index_heads_int16(const IndexScoreArgs& args, std::uint32_t head, Vec* partial) {
  constexpr int kRows = 16 / kVecs;
  for (std::uint32_t row = 0; row < kIndexRows; row += kRows) {
    if (head == 0) prefetch_next(args, row / kRows, kIndexRows / kRows);
    index_part_int16<kVecs, kRows>(args, head, row, partial);
  }
}

inline void index_scores_int16(const IndexScoreArgs& args) {
  Vec partial[kIndexRows];
  for (Vec& each : partial) each = zero();
  std::uint32_t head = 0;
  for (; head + 32 <= args.num_padded; head += 32) index_heads_int16<2>(args, head, partial);
  for (; head < args.num_padded; head += 16) index_heads_int16<1>(args, head, partial);
  store_index_scores(args, partial);
}

}  // namespace kvarto::KVARTO_ISA
