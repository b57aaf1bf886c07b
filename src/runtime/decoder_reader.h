// A model's files as a Decoder.

#pragma once

#include "kvarto/result.h"
#include "runtime/decoder.h"
#include "runtime/model_source.h"

namespace kvarto {

// Finds every tensor that the family needs and checks types and shapes. Matrices stay in their
// files; norms and biases are copied. The source must outlive the decoder. Errors: kCorruptData for
// a tensor that is missing or misshapen, kUnsupported for families, types and tensors that do not
// run; file and tensor are named.
[[nodiscard]] Result<Decoder> read_decoder(const ModelSource& source);

}  // namespace kvarto
