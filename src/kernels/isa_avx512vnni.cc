// Attention over integer codes with 8-bit dot products (AVX512-VNNI), and their peak.

#include <immintrin.h>

#include "kernels/peak_loops.h"

#define KVARTO_ISA avx512vnni
#include "kernels/vec_avx512.h"
// Order matters: each of these uses what the one before declares.
#include "kernels/score_inl.h"
// clang-format off
#include "kernels/softmax_inl.h"
#include "kernels/codes_avx512vnni.h"
#include "kernels/index_inl.h"
#include "kernels/index_avx512vnni.h"
// clang-format on

namespace kvarto::avx512vnni {

// Sums of equal products could be multiplied out; they must be added one by one.
KVARTO_INLINE void keep(__m512i& x) { asm volatile("" : "+v"(x)); }

static float dot_loop(std::size_t rounds) {
  constexpr int kChains = 24;
  __m512i acc[kChains];
  KVARTO_UNROLL(kChains, i) { acc[i] = _mm512_set1_epi32(int{i}); };
  const __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(-1);
  for (std::size_t round = 0; round < rounds; ++round) {
    KVARTO_UNROLL(kChains, i) { acc[i] = _mm512_dpbusd_epi32(acc[i], a, b); };
    KVARTO_UNROLL(kChains, i) { keep(acc[i]); };
  }
  KVARTO_UNROLL(kChains - 1, i) { acc[0] = _mm512_max_epi32(acc[0], acc[i + 1]); };
  return static_cast<float>(_mm512_reduce_max_epi32(acc[0]));
}

static constexpr std::uint64_t kDotLoopOperations = 2ull * 64 * 24;

PeakLoop peak_loop();
PeakLoop peak_loop() { return {"int8 dot", "avx512vnni", dot_loop, kDotLoopOperations}; }

// Leaves the fills of `kernels` as they are.
void fill_code_kernels(CodeKernels& kernels);
void fill_code_kernels(CodeKernels& kernels) {
  kernels.isa = "avx512vnni";
  kernels.is_fast = kernels.is_fast_in_prefill = true;
  kernels.dot_loop = dot_loop;
  kernels.dot_loop_operations = kDotLoopOperations;
  kernels.pack_queries = pack_queries;
  kernels.load_scales = load_scales;
  kernels.weigh = weigh;
  fill_codes<8>(kernels);
  fill_codes<4>(kernels);
}

void fill_index_kernels(IndexKernels& kernels);
void fill_index_kernels(IndexKernels& kernels) {
  kernels.int16 = {"avx512vnni", pack_index_int16, fill_e4m3_int16, round_index,
                   index_scores_int16};
}

}  // namespace kvarto::avx512vnni
