// The codecs compiled for AVX-512 F, BW, DQ and VL. Flags of this file: CMakeLists.txt.

#define KVARTO_ISA avx512
#include "kernels/codec_vec_avx512.h"
// Order matters: each of these uses what the one before declares.
#include "kernels/number_inl.h"
// clang-format off
#include "kernels/codec_ggml_inl.h"
#include "kernels/codec_scaled_inl.h"
#include "kernels/codec_decode_inl.h"
#include "kernels/codec_table_inl.h"
// clang-format on

namespace kvarto::avx512 {

void fill_codecs(KernelTable& table);
void fill_codecs(KernelTable& table) {
  fill_codec_entries(table);
  fill_fast_decoders(table);
}

}  // namespace kvarto::avx512
