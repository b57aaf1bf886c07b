// Reads the vocabulary of a model: GGUF, tokenizer.json or tokenizer.model.

#pragma once

#include <span>
#include <string_view>

#include "kvarto/result.h"
#include "kvarto/vocabulary.h"

namespace kvarto {

// Reads a vocabulary.
//   path  a `.gguf`, a `tokenizer.json`, a `tokenizer.model` (SentencePiece); or a folder, a
//         `config.json`, a `.safetensors` or its index beside which one of the latter two lies, in
//         this order.
// Beside a tokenizer, `tokenizer_config.json`, `generation_config.json` and `config.json` say what
// begins and ends a text, where the tokenizer does not.
// Errors: kNotFound, kIo; kCorruptData naming file, key, value found and expectation;
// kUnsupported for kinds of tokenizers that are not known.
[[nodiscard]] Result<Vocabulary> read_vocabulary(std::string_view path);

// The same from bytes in memory; `name` is used in messages.
[[nodiscard]] Result<Vocabulary> read_tokenizer_json(std::string_view text, std::string_view name);
[[nodiscard]] Result<Vocabulary> read_sentencepiece_model(std::span<const std::byte> bytes,
                                                          std::string_view name);

}  // namespace kvarto
