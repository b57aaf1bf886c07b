// The half-precision multiply-add peak (AVX512-FP16); compiled where the compiler knows the set.

#include <immintrin.h>

#include "kernels/peak_loops.h"

#define KVARTO_ISA avx512fp16
#include "kernels/unroll_inl.h"

namespace kvarto::avx512fp16 {

static float fma_loop(std::size_t rounds) {
  constexpr int kChains = 24;
  __m512h acc[kChains];
  KVARTO_UNROLL(kChains, i) { acc[i] = _mm512_set1_ph(static_cast<_Float16>(int{i})); };
  const __m512h factor = _mm512_set1_ph(static_cast<_Float16>(0.99f));
  const __m512h term = _mm512_set1_ph(static_cast<_Float16>(0.01f));
  for (std::size_t round = 0; round < rounds; ++round) {
    KVARTO_UNROLL(kChains, i) { acc[i] = _mm512_fmadd_ph(acc[i], factor, term); };
  }
  KVARTO_UNROLL(kChains - 1, i) { acc[0] = _mm512_max_ph(acc[0], acc[i + 1]); };
  return static_cast<float>(_mm512_reduce_max_ph(acc[0]));
}

PeakLoop peak_loop();
PeakLoop peak_loop() { return {"f16 fma", "avx512fp16", fma_loop, 2ull * 32 * 24}; }

}  // namespace kvarto::avx512fp16
