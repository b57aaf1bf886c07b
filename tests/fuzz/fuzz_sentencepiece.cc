// Any bytes as a SentencePiece model: an error, or a tokenizer that works.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvarto/vocabulary_file.h"
#include "tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::span input(reinterpret_cast<const std::byte*>(bytes), size);
  kvarto::check_tokenizer(kvarto::read_sentencepiece_model(input, "fuzz.model"));
  return 0;
}
