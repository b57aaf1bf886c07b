// The rotary keys of a model, in all the forms in which files write them.

#pragma once

#include "kvarto/result.h"
#include "runtime/model_source.h"
#include "runtime/rope.h"

namespace kvarto {

// What a family's config class takes where the keys are absent.
struct RopeDefaults {
  double base = 10'000;
  double window_base = 0;  // of layers with a window; 0 = they turn as the others do
};

// The parameters of layers that see everything, or of those with a window. Errors: kCorruptData and
// kUnsupported, naming the key.
[[nodiscard]] Result<RopeParameters> read_rope(const ModelSource& source,
                                               const RopeDefaults& defaults, bool has_window,
                                               std::uint32_t head_dim);

}  // namespace kvarto
