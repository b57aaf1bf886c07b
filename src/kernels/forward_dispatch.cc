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
namespace avx512vnni {
void fill_forward(ForwardKernels& kernels);  // products of quantised weights alone
}  // namespace avx512vnni
#endif

namespace {

// By instruction set; the last is AVX-512 with 8-bit dot products.
constexpr std::size_t kDotProducts = 3;
std::array<ForwardKernels, 4> fill_tables() {
  std::array<ForwardKernels, 4> tables;
  scalar::fill_forward(tables[0]);
#if defined(__x86_64__)
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::kAvx2) avx2::fill_forward(tables[1]);
    if (isa == Isa::kAvx512) avx512::fill_forward(tables[2]);
  }
  if (has_dot_products()) {
    tables[kDotProducts] = tables[2];
    avx512vnni::fill_forward(tables[kDotProducts]);
  }
#endif
  return tables;
}

std::span<const ForwardKernels> all_tables() {
  static const std::array<ForwardKernels, 4> tables = fill_tables();
  return tables;
}

}  // namespace

std::vector<const ForwardKernels*> runnable_forward_kernels() {
  std::vector<const ForwardKernels*> runnable;
  for (const ForwardKernels& table : all_tables()) {
    if (table.isa != nullptr) runnable.push_back(&table);
  }
  return runnable;
}

const ForwardKernels& forward_kernels(Isa isa) {
  const bool has_better = isa == Isa::kAvx512 && has_dot_products();
  return all_tables()[has_better ? kDotProducts : static_cast<std::size_t>(isa)];
}

Result<const ForwardKernels*> active_forward_kernels() {
  KVARTO_TRY(const KernelTable* kernels, active_kernels());
  return &forward_kernels(kernels->isa);
}

}  // namespace kvarto
