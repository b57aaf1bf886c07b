// The vocabulary in a GGUF file: its keys `tokenizer.ggml.*`.

#pragma once

#include <string_view>

#include "formats/gguf.h"
#include "kvarto/result.h"
#include "kvarto/vocabulary.h"

namespace kvarto {

// Reads vocabularies of the kinds `llama` (SentencePiece) and `gpt2` (byte-level merges).
// Errors: kNotFound if the file has none; kCorruptData naming key, value found and expectation;
// kUnsupported for other kinds, and for a way of splitting that is not known.
// Allocates at most 16 times the bytes of the header.
[[nodiscard]] Result<Vocabulary> read_gguf_vocabulary(const GgufHeader& header,
                                                      std::string_view name);

}  // namespace kvarto
