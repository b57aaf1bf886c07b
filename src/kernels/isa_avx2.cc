// The kernels with AVX2, FMA and F16C; see CMakeLists.txt for the flags of this file.

#define KVARTO_ISA avx2
#include "kernels/vec_avx2.h"
// Order matters: each of these uses what the one before declares.
#include "kernels/score_inl.h"
// clang-format off
#include "kernels/accumulate_inl.h"
#include "kernels/softmax_inl.h"
#include "kernels/convert_inl.h"
#include "kernels/codes_inl.h"
#include "kernels/codes_avx2.h"
#include "kernels/index_inl.h"
#include "kernels/probe_inl.h"
#include "kernels/wide_kernels.h"
#include "kernels/wide_shared_inl.h"
#include "kernels/wide_rows_inl.h"
#include "kernels/wide_inl.h"
#include "kernels/table_inl.h"
// clang-format on

namespace kvarto::avx2 {

void fill_table(KernelTable& table) {
  table = make_table(Isa::kAvx2, "avx2");
  fill_pair_table(table.codes);
}

}  // namespace kvarto::avx2
