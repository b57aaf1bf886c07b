// Qwen3, dense: every head of Q and K is normed before it turns.

#include "runtime/families/all.h"

namespace kvarto {

const Family kQwen3Family{.name = "qwen3",
                          .model_type = "qwen3",
                          .gguf_architecture = "qwen3",
                          .rope = {},
                          .has_qk_norm = true};

}  // namespace kvarto
