// Mistral: Llama with a window on some releases. GGUF files of it are those of "llama".

#include "runtime/families/all.h"

namespace kvarto {

const Family kMistralFamily{
    .name = "mistral", .model_type = "mistral", .gguf_architecture = "", .rope = {}};

}  // namespace kvarto
