// The kernels with AVX-512 F, BW, DQ and VL; see CMakeLists.txt for the flags of this file.

#define KVARTO_ISA avx512
#include "kernels/vec_avx512.h"
// Order matters: each of these uses what the one before declares.
#include "kernels/score_inl.h"
// clang-format off
#include "kernels/accumulate_inl.h"
#include "kernels/softmax_inl.h"
#include "kernels/convert_inl.h"
#include "kernels/codes_inl.h"
#include "kernels/index_inl.h"
#include "kernels/index_avx512.h"
#include "kernels/probe_inl.h"
#include "kernels/wide_kernels.h"
#include "kernels/wide_shared_inl.h"
#include "kernels/wide_rows_inl.h"
#include "kernels/wide_inl.h"
#include "kernels/table_inl.h"
// clang-format on

namespace kvarto::avx512 {

void fill_table(KernelTable& table) {
  table = make_table(Isa::kAvx512, "avx512");
  table.index.f32.fill_e4m3 = fill_e4m3_f32;
}

}  // namespace kvarto::avx512
