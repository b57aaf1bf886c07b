// Any bytes as a safetensors file: a header or an error.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::span input(reinterpret_cast<const std::byte*>(bytes), size);
  const auto header = kvarto::parse_safetensors(input, "fuzz.safetensors");
  if (!header) return 0;
  for (const kvarto::SafetensorsTensor& tensor : header->tensors) {
    if (tensor.offset > size || tensor.bytes > size - tensor.offset) std::abort();
  }
  return 0;
}
