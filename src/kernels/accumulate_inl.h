// Probabilities times values: acc[g][d] = acc[g][d] * correction[g] + sum_row p[g][row] *
// v[row][d].

#pragma once

namespace kvarto::KVARTO_ISA {

// kVecs vectors of elements from `element` on, all rows of the chunk, accumulators in registers.
template <Element E, int kQueries, int kVecs, bool kPrefetch>
KVARTO_INLINE void accumulate_strip(const AccumulateArgs& args, std::uint32_t element,
                                    std::uint32_t query) {
  constexpr int kVecBytes = kLanes * kElementBytes<E>;
  constexpr int kVecsPerLine = larger(1, 64 / kVecBytes);
  Vec acc[kQueries * kVecs];
  const std::size_t acc_stride = args.acc_stride;
  float* out = args.acc + query * acc_stride + element;
  KVARTO_UNROLL(kQueries, g) {
    const Vec c = set1(args.correction[query + g]);
    KVARTO_UNROLL(kVecs, i) {
      acc[g * kVecs + i] = mul(load(out + g * acc_stride + i * kLanes), c);
    };
  };
  const std::byte* v = args.v + element * kElementBytes<E>;
  const std::byte* next = kPrefetch ? args.next_v + element * kElementBytes<E> : nullptr;
  const float* p = args.p + query * kChunkRows;
  for (std::size_t row = args.first_row; row < args.end_row; ++row) {
    const std::byte* values = v + args.offsets[row];
    Vec x[kVecs];
    KVARTO_UNROLL(kVecs, i) {
      if constexpr (kPrefetch && i % kVecsPerLine == 0) {
        prefetch(next + args.next_offsets[row] + i * kVecBytes);
      }
      x[i] = load_elements<E>(values + i * kVecBytes);
    };
    KVARTO_UNROLL(kQueries, g) {
      const Vec b = set1(p[g * static_cast<int>(kChunkRows) + row]);
      KVARTO_UNROLL(kVecs, i) { acc[g * kVecs + i] = fma(x[i], b, acc[g * kVecs + i]); };
    };
  }
  KVARTO_UNROLL(kQueries, g) {
    KVARTO_UNROLL(kVecs, i) { store(out + g * acc_stride + i * kLanes, acc[g * kVecs + i]); };
  };
}

// The last dim % kLanes elements.
template <Element E, int kQueries>
KVARTO_INLINE void accumulate_tail(const AccumulateArgs& args, std::uint32_t element,
                                   std::uint32_t query) {
  const int rest = static_cast<int>(args.dim - element);
  Vec acc[kQueries];
  const std::size_t acc_stride = args.acc_stride;
  float* out = args.acc + query * acc_stride + element;
  KVARTO_UNROLL(kQueries, g) {
    acc[g] = mul(load(out + g * acc_stride), set1(args.correction[query + g]));
  };
  for (std::size_t row = args.first_row; row < args.end_row; ++row) {
    const Vec x = load_partial<E>(args.v + args.offsets[row] + element * kElementBytes<E>, rest);
    KVARTO_UNROLL(kQueries, g) {
      acc[g] = fma(x, set1(args.p[(query + g) * kChunkRows + row]), acc[g]);
    };
  }
  KVARTO_UNROLL(kQueries, g) { store(out + g * acc_stride, acc[g]); };
}

template <Element E, int kQueries, int kVecs, bool kPrefetch>
KVARTO_INLINE std::uint32_t accumulate_strips(const AccumulateArgs& args, std::uint32_t element,
                                              std::uint32_t query) {
  constexpr std::uint32_t kStrip = kVecs * kLanes;
  for (; element + kStrip <= args.dim; element += kStrip) {
    accumulate_strip<E, kQueries, kVecs, kPrefetch>(args, element, query);
  }
  if constexpr (kVecs > 1) {
    return accumulate_strips<E, kQueries, kVecs / 2, kPrefetch>(args, element, query);
  } else {
    return element;
  }
}

template <Element E, int kStride>
void accumulate(const AccumulateArgs& args) {
  constexpr int kQueries = smaller(kStride, kAccumulators);
  constexpr int kVecs = smaller(8, kAccumulators / kQueries);
  for (int query = 0; query < kStride; query += kQueries) {
    const auto first = static_cast<std::uint32_t>(query);
    const std::uint32_t element =
        query == 0 && args.next_v != nullptr
            ? accumulate_strips<E, kQueries, kVecs, true>(args, 0, first)
            : accumulate_strips<E, kQueries, kVecs, false>(args, 0, first);
    if (element < args.dim) accumulate_tail<E, kQueries>(args, element, first);
  }
}

}  // namespace kvarto::KVARTO_ISA
