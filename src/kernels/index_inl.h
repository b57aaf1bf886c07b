// Index scores in f32, and in integers where there is no instruction for them.

#pragma once

#include "kernels/index_kernels.h"

namespace kvarto::KVARTO_ISA {

inline void pack_index_f32(const PackIndexArgs& args) {
  for (std::uint32_t d = 0; d < args.dim; ++d) {
    for (std::uint32_t h = 0; h < args.num_padded; ++h) {
      args.packed[std::size_t{d} * args.num_padded + h] =
          h < args.num_heads ? args.q[std::size_t{h} * args.dim + d] : 0.0f;
    }
  }
  for (std::uint32_t h = 0; h < args.num_padded; ++h) {
    args.packed_weights[h] = h < args.num_heads ? args.weights[h] : 0.0f;
  }
}

// Below it the inverse of a unit leaves the range of f32; such numbers become 0.
inline constexpr float kSmallestMagnitude = 1e-30f;

// Integers that stand for `count` numbers, at most `largest` in magnitude: x = unit x integer.
// Returns the unit: 0 for zeros, NaN where a number is not finite.
inline float round_to_int16(const float* x, std::uint32_t count, std::int32_t largest,
                            std::int16_t* out) {
  float magnitude = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const float each = __builtin_fabsf(x[i]);
    magnitude = each > magnitude ? each : magnitude;
  }
  bool is_finite = true;
  for (std::uint32_t i = 0; i < count; ++i) is_finite &= __builtin_fabsf(x[i]) < __builtin_inff();
  const float unit = magnitude / static_cast<float>(largest);
  if (!is_finite || unit == 0 || magnitude < kSmallestMagnitude) {
    for (std::uint32_t i = 0; i < count; ++i) out[i] = 0;
    return is_finite ? 0 : __builtin_nanf("");
  }
  const float inverse = static_cast<float>(largest) / magnitude;
  for (std::uint32_t i = 0; i < count; ++i) {
    const float scaled = x[i] * inverse;
    out[i] = static_cast<std::int16_t>(scaled + (scaled < 0 ? -0.5f : 0.5f));
  }
  return unit;
}

inline void pack_index_int16(const PackIndexArgs& args) {
  auto* packed = reinterpret_cast<std::int16_t*>(args.packed);
  const std::size_t pairs = (std::size_t{args.dim} + 1) / 2;
  for (std::size_t i = 0; i < pairs * args.num_padded * 2; ++i) packed[i] = 0;
  std::int16_t row[kMaxIndexDim];
  for (std::uint32_t h = 0; h < args.num_padded; ++h) {
    args.packed_weights[h] = 0;
    if (h >= args.num_heads) continue;
    const float unit = round_to_int16(args.q + std::size_t{h} * args.dim, args.dim,
                                      index_query_max(args.dim), row);
    args.packed_weights[h] = args.weights[h] * unit;
    for (std::size_t d = 0; d < args.dim; ++d) {
      packed[(d / 2 * args.num_padded + h) * 2 + d % 2] = row[d];
    }
  }
}

inline void round_index(const RoundIndexArgs& args) {
  const std::size_t stride = (std::size_t{args.dim} + 1) / 2 * 2;
  for (std::uint32_t row = 0; row < args.count; ++row) {
    std::int16_t* out = args.out + row * stride;
    out[stride - 1] = 0;
    args.units[row] =
        round_to_int16(args.rows + std::size_t{row} * args.dim, args.dim, kIndexKeyMax, out);
  }
}

KVARTO_INLINE float number_of_e4m3(std::uint32_t code) {
  const std::uint32_t magnitude = code & 0x7f;
  if (magnitude == 0x7f) return __builtin_nanf("");
  const float number = magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9f
                                     : __builtin_bit_cast(float, (magnitude << 20) + (120u << 23));
  return (code & 0x80) != 0 ? -number : number;
}

inline void fill_e4m3_f32_plain(const FillIndexArgs& args) {
  float* out = static_cast<float*>(args.out);
  for (std::uint32_t row = 0; row < args.count; ++row, out += args.dim) {
    const std::byte* codes = args.codes + row * args.stride_bytes;
    for (std::uint32_t d = 0; d < args.dim; ++d) {
      out[d] = number_of_e4m3(static_cast<std::uint32_t>(codes[d]));
    }
    args.units[row] = 1;
  }
}

// In eighths, to nearest, halves away from zero.
inline void fill_e4m3_int16_plain(const FillIndexArgs& args) {
  const std::size_t stride = (std::size_t{args.dim} + 1) / 2 * 2;
  auto* out = static_cast<std::int16_t*>(args.out);
  for (std::uint32_t row = 0; row < args.count; ++row, out += stride) {
    const std::byte* codes = args.codes + row * args.stride_bytes;
    bool is_nan = false;
    out[stride - 1] = 0;
    for (std::uint32_t d = 0; d < args.dim; ++d) {
      const auto code = static_cast<std::uint32_t>(codes[d]);
      is_nan |= (code & 0x7f) == 0x7f;
      const std::uint32_t shifted = ((code & 7) | 8) << 9 >> (15 - ((code >> 3) & 15));
      const auto magnitude = static_cast<std::int32_t>((shifted + 1) / 2);
      out[d] = static_cast<std::int16_t>((code & 0x80) != 0 ? -magnitude : magnitude);
    }
    args.units[row] = is_nan ? __builtin_nanf("") : 0.125f;
  }
}

// Part `part` of `parts` of the lines of the next call: a burst would fill the buffers that loads
// need.
KVARTO_INLINE void prefetch_next(const IndexScoreArgs& args, std::size_t part, std::size_t parts) {
  const std::size_t lines = (args.next_bytes + 63) / 64;
  for (std::size_t i = lines * part / parts; i < lines * (part + 1) / parts; ++i) {
    __builtin_prefetch(args.next + i * 64, 0, 2);
  }
}

// kVecs vectors of heads from `head` on, by kRows rows from `row` on, added to partial[row].
template <int kVecs, int kRows>
KVARTO_INLINE void index_part(const IndexScoreArgs& args, std::uint32_t head, std::uint32_t row,
                              Vec* partial) {
  const float* q = args.q + head;
  const float* keys = static_cast<const float*>(args.keys) + std::size_t{row} * args.dim;
  const std::size_t dim = args.dim;
  Vec acc[kRows * kVecs];
  KVARTO_UNROLL(kRows * kVecs, i) { acc[i] = zero(); };
  for (std::size_t d = 0; d < dim; ++d, q += args.num_padded) {
    Vec queries[kVecs];
    KVARTO_UNROLL(kVecs, v) { queries[v] = load(q + v * kLanes); };
    KVARTO_UNROLL(kRows, r) {
      const Vec key = set1(keys[r * dim + d]);
      KVARTO_UNROLL(kVecs, v) { acc[r * kVecs + v] = fma(queries[v], key, acc[r * kVecs + v]); };
    };
  }
  KVARTO_UNROLL(kVecs, v) {
    const Vec weight = load(args.weights + head + v * kLanes);
    // The order of max lets NaN through.
    KVARTO_UNROLL(kRows, r) {
      partial[row + r] = fma(weight, max(zero(), acc[r * kVecs + v]), partial[row + r]);
    };
  };
}

template <int kVecs>
KVARTO_INLINE void index_heads(const IndexScoreArgs& args, std::uint32_t head, Vec* partial) {
  constexpr int kRows = larger(1, kAccumulators / kVecs);
  for (std::uint32_t row = 0; row < kIndexRows; row += kRows) {
    if (head == 0) prefetch_next(args, row / kRows, kIndexRows / kRows);
    index_part<kVecs, kRows>(args, head, row, partial);
  }
}

KVARTO_INLINE void store_index_scores(const IndexScoreArgs& args, const Vec* partial) {
  alignas(64) float sums[kIndexRows];
  for (std::uint32_t row = 0; row < kIndexRows; row += kLanes) {
    store(sums + row, reduce_each(partial + row));
  }
  for (std::uint32_t row = 0; row < args.count; ++row) {
    args.scores[row] = sums[row] * args.scales[row];
  }
}

inline void index_scores_f32(const IndexScoreArgs& args) {
  constexpr int kMostVecs = 2;
  Vec partial[kIndexRows];
  for (Vec& each : partial) each = zero();
  std::uint32_t head = 0;
  for (; head + kMostVecs * kLanes <= args.num_padded; head += kMostVecs * kLanes) {
    index_heads<kMostVecs>(args, head, partial);
  }
  for (; head < args.num_padded; head += kLanes) index_heads<1>(args, head, partial);
  store_index_scores(args, partial);
}

// The integers of every instruction set, one product after the other.
inline void index_scores_int16_plain(const IndexScoreArgs& args) {
  const std::size_t pairs = (std::size_t{args.dim} + 1) / 2;
  const auto* q = reinterpret_cast<const std::int16_t*>(args.q);
  for (std::uint32_t row = 0; row < args.count; ++row) {
    const std::int16_t* key = static_cast<const std::int16_t*>(args.keys) + row * pairs * 2;
    float score = 0;
    for (std::uint32_t head = 0; head < args.num_padded; head += kIndexHeadLanes) {
      std::int32_t acc[kIndexHeadLanes] = {};
      for (std::size_t d = 0; d < pairs; ++d) {
        const std::int16_t* pair = q + (d * args.num_padded + head) * 2;
        for (std::uint32_t h = 0; h < kIndexHeadLanes; ++h) {
          acc[h] += pair[2 * h] * key[2 * d] + pair[2 * h + 1] * key[2 * d + 1];
        }
      }
      for (std::uint32_t h = 0; h < kIndexHeadLanes; ++h) {
        score += args.weights[head + h] * static_cast<float>(acc[h] > 0 ? acc[h] : 0);
      }
    }
    args.scores[row] = score * args.scales[row];
  }
}

inline IndexKernels make_index_kernels(const char* isa) {
  return {.f32 = {isa, pack_index_f32, fill_e4m3_f32_plain, nullptr, index_scores_f32},
          .int16 = {isa, pack_index_int16, fill_e4m3_int16_plain, round_index,
                    index_scores_int16_plain}};
}

}  // namespace kvarto::KVARTO_ISA
