#include "kernels/forward_dispatch.h"

#include <array>

namespace kvarto {

namespace scalar {
void fill_forward(ForwardKernels& kernels);
}  // namespace scalar
#if defined(__x86_64__)
namespace avx2 {
void fill_forward(ForwardKernels& kernels);
}  // namespace avx2
namespace avx512 {
void fill_forward(ForwardKernels& kernels);
}  // namespace avx512
#endif

namespace {

std::array<ForwardKernels, 3> fill_tables() {
  std::array<ForwardKernels, 3> tables;
  scalar::fill_forward(tables[0]);
#if defined(__x86_64__)
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::kAvx2) avx2::fill_forward(tables[1]);
    if (isa == Isa::kAvx512) avx512::fill_forward(tables[2]);
  }
#endif
  return tables;
}

}  // namespace

const ForwardKernels& forward_kernels(Isa isa) {
  static const std::array<ForwardKernels, 3> tables = fill_tables();
  return tables[static_cast<std::size_t>(isa)];
}

Result<const ForwardKernels*> active_forward_kernels() {
  KVARTO_TRY(const KernelTable* kernels, active_kernels());
  return &forward_kernels(kernels->isa);
}

}  // namespace kvarto
