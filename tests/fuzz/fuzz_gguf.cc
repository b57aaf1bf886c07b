// Any bytes as a GGUF file: a model or an error, from both readers.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "formats/gguf.h"
#include "formats/gguf_model.h"
#include "formats/gguf_vocabulary.h"
#include "tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::span input(reinterpret_cast<const std::byte*>(bytes), size);
  const auto header = kvarto::parse_gguf(input, "fuzz.gguf");
  if (!header) return 0;
  for (const kvarto::GgufTensor& tensor : header->tensors) {
    if (tensor.offset > size || tensor.bytes > size - tensor.offset) std::abort();
  }
  for (const kvarto::GgufKey& key : header->keys) {
    (void)kvarto::gguf_unsigned(key.value);
    (void)kvarto::gguf_string(key.value);
    (void)kvarto::gguf_strings(key.value);
  }
  kvarto::check_tokenizer(kvarto::read_gguf_vocabulary(*header, "fuzz.gguf"));
  const kvarto::GgufHeader* parts[] = {&*header};
  const auto spec = kvarto::read_gguf_model(parts, "fuzz.gguf");
  if (!spec) return 0;
  if (spec->num_layers == 0) std::abort();
  for (const auto* groups : {&spec->groups, &spec->draft_groups}) {
    for (const kvarto::LayerGroup& group : *groups) {
      for (const kvarto::Stream& stream : group.streams) (void)kvarto::row_bytes(stream);
    }
  }
  return 0;
}
