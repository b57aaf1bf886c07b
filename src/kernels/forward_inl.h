// Norms, gates and rotations, and rows of dense weights times activations.

#pragma once

#include "kernels/forward_kernels.h"

namespace kvarto::KVARTO_ISA {

KVARTO_INLINE float sum_lanes(Vec x) {
  float lanes[kLanes];
  store(lanes, x);
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += lanes[i];
  return sum;
}
KVARTO_INLINE Vec load_floats(const float* p, std::uint32_t count) {
  return load_partial<Element::kF32>(reinterpret_cast<const std::byte*>(p),
                                     static_cast<int>(count));
}
KVARTO_INLINE void store_floats(float* p, Vec x, std::uint32_t count) {
  store_partial<Element::kF32>(reinterpret_cast<std::byte*>(p), x, static_cast<int>(count));
}

// Weights are read once, in order, and a row is shorter than what a core must have asked for ahead:
// with this many bytes it reads up to twice as fast as the processor's own prefetcher lets it.
static constexpr std::size_t kAheadBytes = 4096;
template <std::size_t Bytes>
KVARTO_INLINE void prefetch_ahead(const std::byte* p) {
  KVARTO_UNROLL(static_cast<int>((Bytes + 63) / 64), line) {
    __builtin_prefetch(p + kAheadBytes + static_cast<std::size_t>(64 * line));
  };
}

static constexpr int element_bytes(Element e) { return e == Element::kF32 ? 4 : 2; }

template <Element E>
KVARTO_INLINE Vec dense_row(const std::byte* w, const float* x, std::uint32_t columns) {
  constexpr int kBytes = element_bytes(E);
  constexpr std::uint32_t kChains = 4;
  Vec acc[kChains] = {zero(), zero(), zero(), zero()};
  std::uint32_t c = 0;
  for (; c + kChains * kLanes <= columns; c += kChains * kLanes) {
    prefetch_ahead<std::size_t{kChains} * kLanes * kBytes>(w + std::size_t{c} * kBytes);
    KVARTO_UNROLL(kChains, i) {
      const std::uint32_t at = c + static_cast<std::uint32_t>(i * kLanes);
      acc[i] = fma(load_elements<E>(w + std::size_t{at} * kBytes), load(x + at), acc[i]);
    };
  }
  for (; c + kLanes <= columns; c += kLanes) {
    acc[0] = fma(load_elements<E>(w + std::size_t{c} * kBytes), load(x + c), acc[0]);
  }
  if (c < columns) {
    const int rest = static_cast<int>(columns - c);
    acc[1] = fma(load_partial<E>(w + std::size_t{c} * kBytes, rest),
                 load_floats(x + c, columns - c), acc[1]);
  }
  return add(add(acc[0], acc[1]), add(acc[2], acc[3]));
}

// Calls row(r) for every row and stores the sums of the lanes, kLanes rows at a time.
template <typename Row>
KVARTO_INLINE void each_row(const RowProductsArgs& args, const Row& row) {
  for (std::uint32_t first = 0; first < args.num_rows; first += kLanes) {
    const std::uint32_t count =
        args.num_rows - first < kLanes ? args.num_rows - first : std::uint32_t{kLanes};
    Vec sums[kLanes];
    for (std::uint32_t i = 0; i < count; ++i) {
      sums[i] = row(args.weights + (first + i) * args.row_bytes);
    }
    for (std::uint32_t i = count; i < kLanes; ++i) sums[i] = zero();
    const Vec out = reduce_each(sums);
    if (count == kLanes) {
      store(args.out + first, out);
    } else {
      store_floats(args.out + first, out, count);
    }
  }
}

template <Element E>
void dense_products(const RowProductsArgs& args) {
  each_row(args, [&](const std::byte* w) { return dense_row<E>(w, args.x, args.columns); });
}

template <Element E>
void widen_dense(const std::byte* from, float* to, std::size_t count) {
  constexpr int kBytes = element_bytes(E);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, load_elements<E>(from + i * kBytes));
  if (i < count) {
    const auto rest = static_cast<std::uint32_t>(count - i);
    store_floats(to + i, load_partial<E>(from + i * kBytes, static_cast<int>(rest)), rest);
  }
}

inline void rms_norm(const RmsNormArgs& args) {
  Vec squares = zero();
  std::uint32_t i = 0;
  for (; i + kLanes <= args.count; i += kLanes) {
    const Vec x = load(args.x + i);
    squares = fma(x, x, squares);
  }
  const std::uint32_t rest = args.count - i;
  if (rest > 0) {
    const Vec x = load_floats(args.x + i, rest);
    squares = fma(x, x, squares);
  }
  const float mean = sum_lanes(squares) / static_cast<float>(args.count);
  const Vec factor = set1(1.0f / __builtin_sqrtf(mean + args.eps));
  for (i = 0; i + kLanes <= args.count; i += kLanes) {
    store(args.out + i, mul(mul(load(args.x + i), factor), load(args.weight + i)));
  }
  if (rest > 0) {
    const Vec x = mul(load_floats(args.x + i, rest), factor);
    store_floats(args.out + i, mul(x, load_floats(args.weight + i, rest)), rest);
  }
}

// x / (1 + e^(-c)). exp2 takes less than 128; beyond 2^126 the quotient is 0 in any case.
KVARTO_INLINE Vec sigmoid_times(Vec x, Vec c) {
  constexpr float kLog2E = 1.44269504f;
  const Vec power = exp2(min(mul(c, set1(-kLog2E)), set1(126.0f)));
  return div(x, add(set1(1.0f), power));
}
template <Activation A>
KVARTO_INLINE Vec activate(Vec x) {
  if constexpr (A == Activation::kSilu) {
    return sigmoid_times(x, x);
  } else {
    // (1 + tanh(y)) / 2 = 1 / (1 + e^(-2 y)), y = sqrt(2 / pi) (x + 0.044715 x^3)
    constexpr float kTwoRoot = 1.59576912f;
    const Vec cubic = fma(mul(mul(x, x), x), set1(0.044715f), x);
    return sigmoid_times(x, mul(cubic, set1(kTwoRoot)));
  }
}
template <Activation A>
void gate_with(const GateArgs& args) {
  std::size_t i = 0;
  for (; i + kLanes <= args.count; i += kLanes) {
    store(args.gate + i, mul(activate<A>(load(args.gate + i)), load(args.up + i)));
  }
  const auto rest = static_cast<std::uint32_t>(args.count - i);
  if (rest == 0) return;
  const Vec gate = activate<A>(load_floats(args.gate + i, rest));
  store_floats(args.gate + i, mul(gate, load_floats(args.up + i, rest)), rest);
}
inline void gate(const GateArgs& args) {
  if (args.activation == Activation::kSilu) {
    gate_with<Activation::kSilu>(args);
  } else {
    gate_with<Activation::kGeluTanh>(args);
  }
}

inline void rotate(const RotateArgs& args) {
  const std::uint32_t half = args.dims / 2;
  for (std::uint32_t head = 0; head < args.num_heads; ++head) {
    float* x = args.heads + std::size_t{head} * args.head_dim;
    const bool is_halves = args.order == RopeOrder::kHalves;
    for (std::uint32_t i = 0; i < half; ++i) {
      float& a = x[is_halves ? i : 2 * i];
      float& b = x[is_halves ? i + half : 2 * i + 1];
      const float turned = a * args.cosines[i] - b * args.sines[i];
      b = b * args.cosines[i] + a * args.sines[i];
      a = turned;
    }
  }
}

}  // namespace kvarto::KVARTO_ISA
