// Compile-time loops inside the namespace of one instruction set.
//
// GCC 12 keeps accumulator arrays on the stack when a loop is unrolled by pragma, which costs a
// factor of 2 to 4; a fold over constant indices keeps them in registers.

#pragma once

#include <cstddef>

#define KVARTO_INLINE static inline __attribute__((always_inline))

// unroll<N>(function) calls function(Index<0>{}) ... function(Index<N - 1>{}).
#define KVARTO_UNROLL(count, index) \
  unroll_count<(count)>() % [&](auto index) __attribute__((always_inline))

namespace kvarto::KVARTO_ISA {

template <int I>
struct Index {
  constexpr operator int() const { return I; }  // an index is used as the number it stands for
};
template <int... I>
struct Indices {};
template <int N, int... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I>
struct MakeIndices<0, I...> {
  using Type = Indices<I...>;
};

template <int N>
struct UnrollCount {};
template <int N>
constexpr UnrollCount<N> unroll_count() {
  return {};
}
template <typename Body, int... I>
KVARTO_INLINE void unroll_each(const Body& body, Indices<I...>) {
  (body(Index<I>{}), ...);
}
template <int N, typename Body>
KVARTO_INLINE void operator%(UnrollCount<N>, const Body& body) {
  unroll_each(body, typename MakeIndices<N>::Type{});
}

constexpr int smaller(int a, int b) { return a < b ? a : b; }
constexpr int larger(int a, int b) { return a > b ? a : b; }

}  // namespace kvarto::KVARTO_ISA
