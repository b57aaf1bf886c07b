// The kernels without intrinsics: what every machine can run.

#define KVARTO_ISA scalar
#include "kernels/vec_scalar.h"
// Order matters: each of these uses what the one before declares.
#include "kernels/score_inl.h"
// clang-format off
#include "kernels/accumulate_inl.h"
#include "kernels/softmax_inl.h"
#include "kernels/convert_inl.h"
#include "kernels/codes_inl.h"
#include "kernels/index_inl.h"
#include "kernels/probe_inl.h"
#include "kernels/wide_kernels.h"
#include "kernels/wide_shared_inl.h"
#include "kernels/wide_rows_inl.h"
#include "kernels/wide_inl.h"
#include "kernels/table_inl.h"
// clang-format on

namespace kvarto::scalar {

void fill_table(KernelTable& table) { table = make_table(Isa::kScalar, "scalar"); }

}  // namespace kvarto::scalar
