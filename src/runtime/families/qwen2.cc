// Qwen2 and Qwen2.5, dense: biases on Q, K and V.

#include "runtime/families/all.h"

namespace kvarto {

const Family kQwen2Family{.name = "qwen2",
                          .model_type = "qwen2",
                          .gguf_architecture = "qwen2",
                          .rope = {},
                          .has_qkv_bias = true};

}  // namespace kvarto
