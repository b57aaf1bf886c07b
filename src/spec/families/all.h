// The readers of all families, one declaration a file of this folder; listed in families.cc.

#pragma once

#include "kvarto/model_spec.h"
#include "spec/keys.h"

namespace kvarto {

// dense.cc: every type of the table in dense_types.cc (plain, windowed and chunked attention whose
// keys differ only in names and defaults).
[[nodiscard]] Result<ModelSpec> read_dense_family(const Keys& keys, const Keys& root);

}  // namespace kvarto
