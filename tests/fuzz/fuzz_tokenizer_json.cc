// Any bytes as a tokenizer.json: an error, or a tokenizer that works.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kvarto/vocabulary_file.h"
#include "tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  kvarto::check_tokenizer(kvarto::read_tokenizer_json(text, "fuzz.json"));
  return 0;
}
