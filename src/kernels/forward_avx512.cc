// The forward pass's kernels, avx512; see CMakeLists.txt for the flags of this file.

#define KVARTO_ISA avx512
#include "kernels/words_avx512.h"
// Order matters: each of these uses what the one before declares.
#include "kernels/forward_inl.h"
// clang-format off
#include "kernels/quantised_inl.h"
// clang-format on

namespace kvarto::avx512 {

void fill_forward(ForwardKernels& kernels);
void fill_forward(ForwardKernels& kernels) { kernels = make_forward_kernels("avx512"); }

}  // namespace kvarto::avx512
