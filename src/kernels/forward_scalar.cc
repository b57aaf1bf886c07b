// The forward pass's kernels, scalar; see CMakeLists.txt for the flags of this file.

#define KVARTO_ISA scalar
#include "kernels/words_scalar.h"
// Order matters: each of these uses what the one before declares.
#include "kernels/forward_inl.h"
// clang-format off
#include "kernels/quantised_inl.h"
// clang-format on

namespace kvarto::scalar {

void fill_forward(ForwardKernels& kernels);
void fill_forward(ForwardKernels& kernels) { kernels = make_forward_kernels("scalar"); }

}  // namespace kvarto::scalar
