// Which kernel table runs: chosen once from what the processor has, or forced by KVARTO_ISA.

#pragma once

#include <span>
#include <string_view>

#include "kernels/kernels.h"
#include "kernels/peak_loops.h"
#include "kvarto/result.h"

namespace kvarto {

[[nodiscard]] std::string_view isa_name(Isa isa);

// The instruction sets that were compiled in and that this processor and its system support, worst
// first. kScalar is always there.
[[nodiscard]] std::span<const Isa> supported_isas();

// The table of `isa`. Requires: isa is supported.
[[nodiscard]] const KernelTable& kernel_table(Isa isa);

// The table for arithmetic in half precision over f16 rows and tiles: that of AVX-512 with
// AVX512-FP16 kernels, its multiply-add loop included. `selected` is the table that runs otherwise.
// Errors: kUnsupported if `selected` is another set (KVARTO_ISA), if the processor lacks the unit
// or the compiler could not build for it.
[[nodiscard]] Result<const KernelTable*> half_kernels(const KernelTable& selected);

// Whether kAvx512 is supported and has 8-bit dot products (AVX512-VNNI) besides.
[[nodiscard]] bool has_dot_products();

// The loops of units beyond those tables (half precision, 8-bit dot products) that this machine
// has.
[[nodiscard]] std::span<const PeakLoop> native_peak_loops();

// The instruction set that `request` (the value of KVARTO_ISA; null or empty: not set) selects:
// scalar, avx2 or avx512, else the best supported one.
// Errors: kInvalidArgument for an unknown name, kUnsupported for one that cannot run here.
[[nodiscard]] Result<Isa> choose_isa(const char* request);

// The table that choose_isa selects for this process. KVARTO_ISA is read at the first call, the
// answer (an error too) is kept. Thread-safe.
[[nodiscard]] Result<const KernelTable*> active_kernels();

}  // namespace kvarto
