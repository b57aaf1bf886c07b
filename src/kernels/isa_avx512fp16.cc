// Attention and the multiply-add peak in half precision (AVX512-FP16); compiled where the compiler
// knows the set.

#define KVARTO_ISA avx512fp16
#include "kernels/half_kernels.h"
#include "kernels/peak_loops.h"
#include "kernels/vec_avx512.h"
// Order matters: each of these uses what the one before declares.
#include "kernels/score_inl.h"
// clang-format off
#include "kernels/softmax_inl.h"
#include "kernels/half_inl.h"
#include "kernels/wide_kernels.h"
#include "kernels/wide_shared_inl.h"
#include "kernels/wide_rows_inl.h"
#include "kernels/wide_half_inl.h"
// clang-format on

namespace kvarto::avx512fp16 {

inline constexpr int kHalfChains = 24;
inline constexpr std::uint64_t kHalfLoopFlop = 2ull * kHalfLanes * kHalfChains;

static float fma_loop(std::size_t rounds) {
  Half acc[kHalfChains];
  KVARTO_UNROLL(kHalfChains, i) { acc[i] = _mm512_set1_ph(static_cast<_Float16>(int{i})); };
  const Half factor = _mm512_set1_ph(static_cast<_Float16>(0.99f));
  const Half term = _mm512_set1_ph(static_cast<_Float16>(0.01f));
  for (std::size_t round = 0; round < rounds; ++round) {
    KVARTO_UNROLL(kHalfChains, i) { acc[i] = _mm512_fmadd_ph(acc[i], factor, term); };
  }
  KVARTO_UNROLL(kHalfChains - 1, i) { acc[0] = _mm512_max_ph(acc[0], acc[i + 1]); };
  return static_cast<float>(_mm512_reduce_max_ph(acc[0]));
}

PeakLoop peak_loop();
PeakLoop peak_loop() { return {"f16 fma", "avx512fp16", fma_loop, kHalfLoopFlop}; }

// `table` has the kernels of AVX-512; those over f16 tiles and rows are replaced.
void fill_table(KernelTable& table);
void fill_table(KernelTable& table) {
  constexpr auto e = static_cast<int>(Element::kF16);
  table.name = "avx512fp16";
  table.score_tiles[e][0] = half_score_tiles<1>;
  table.score_tiles[e][1] = half_score_tiles<2>;
  table.score_tiles[e][2] = half_score_tiles<4>;
  table.score_tiles[e][3] = half_score_tiles<8>;
  table.accumulate[e][0] = half_accumulate<1>;
  table.accumulate[e][1] = half_accumulate<2>;
  table.accumulate[e][2] = half_accumulate<4>;
  table.accumulate[e][3] = half_accumulate<8>;
  table.softmax = half_softmax;
  table.join_tiles = half_join_tiles;
  table.pack_query_tile = half_pack_query_tile;
  table.wide = &kWideHalfKernels;
  table.fma_loop = fma_loop;
  table.fma_loop_flop = kHalfLoopFlop;
}

}  // namespace kvarto::avx512fp16
