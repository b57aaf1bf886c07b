// Any bytes as a text for two small tokenizers, one of each rule: an error if they are no UTF-8,
// else tokens that give the text back. The same bytes as tokens decode to valid UTF-8.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/utf8.h"
#include "kvarto/tokenizer.h"
#include "samples/vocabularies.h"

namespace kvarto {
namespace {

const Tokenizer& scored() {
  static const Tokenizer tokenizer = *Tokenizer::create(samples::scored_vocabulary(
      {"\u2581", "a", "b", "aa", "ab", "\u2581a", "\u00e9", "aaaa", "<", "s", ">", "<s"}));
  return tokenizer;
}

const Tokenizer& byte_level() {
  static const Tokenizer tokenizer = [] {
    Vocabulary vocabulary =
        samples::byte_vocabulary({{"a", "b"}, {"a", "a"}, {"aa", "aa"}, {"b", "ab"}});
    vocabulary.splits = {{.pattern =
                              R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
                              R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}};
    return *Tokenizer::create(std::move(vocabulary));
  }();
  return tokenizer;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

void check(const Tokenizer& tokenizer, std::string_view text) {
  const auto tokens = tokenizer.encode(text, {.adds_ends = false});
  if (tokens.has_value() != is_utf8(text)) std::abort();
  // Marks of spaces in a text come back as spaces.
  const bool has_mark = text.find("\u2581") != std::string_view::npos;
  if (tokens.has_value() && !has_mark && tokenizer.decode(*tokens) != text) std::abort();
  TokenDecoder decoder(tokenizer);
  for (const char c : text) {
    if (!is_utf8(decoder.add(static_cast<unsigned char>(c)))) std::abort();
  }
  if (!is_utf8(decoder.finish())) std::abort();
}

}  // namespace
}  // namespace kvarto

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  kvarto::check(kvarto::scored(), text);
  kvarto::check(kvarto::byte_level(), text);
  return 0;
}
