// What a cache needs of a model that a program has made itself.

#pragma once

#include "kvarto/model_spec.h"
#include "kvarto/result.h"

namespace kvarto {

// Errors: kInvalidArgument, naming layer group, stream and field.
[[nodiscard]] Status check_model(const ModelSpec& model);

}  // namespace kvarto
