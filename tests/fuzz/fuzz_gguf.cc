// Any bytes as a GGUF file: a header or an error.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "formats/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::span input(reinterpret_cast<const std::byte*>(bytes), size);
  const auto header = kvarto::parse_gguf(input, "fuzz.gguf");
  if (!header) return 0;
  for (const kvarto::GgufKey& key : header->keys) {
    (void)kvarto::gguf_unsigned(key.value);
    (void)kvarto::gguf_string(key.value);
    (void)kvarto::gguf_strings(key.value);
  }
  for (const kvarto::GgufTensor& tensor : header->tensors) {
    if (tensor.offset > size || tensor.bytes > size - tensor.offset) std::abort();
  }
  return 0;
}
