// The codecs without intrinsics: their definition. Flags of this file: CMakeLists.txt.

#define KVARTO_ISA scalar
#include "kernels/kernels.h"
#include "kernels/unroll_inl.h"
// Order matters: each of these uses what the one before declares.
#include "kernels/number_inl.h"
// clang-format off
#include "kernels/codec_ggml_inl.h"
#include "kernels/codec_scaled_inl.h"
#include "kernels/codec_table_inl.h"
// clang-format on

namespace kvarto::scalar {

void fill_codecs(KernelTable& table);
void fill_codecs(KernelTable& table) { fill_codec_entries(table); }

}  // namespace kvarto::scalar
