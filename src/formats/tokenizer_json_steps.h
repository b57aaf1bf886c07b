// The parts of a tokenizer.json that say how text is changed, split and put together again.

#pragma once

#include <string_view>

#include "kvarto/result.h"
#include "kvarto/vocabulary.h"
#include "spec/keys.h"

namespace kvarto {

// Each reads one part into the vocabulary, whose tokens must be complete for the post-processor.
// `path` is that of the part, for messages; null parts say nothing.
// Errors: kUnsupported for types that are not known; kCorruptData.
[[nodiscard]] Status read_json_normalizer(const Value& part, std::string_view path,
                                          Vocabulary& vocabulary);
[[nodiscard]] Status read_json_pre_tokenizer(const Value& part, std::string_view path,
                                             Vocabulary& vocabulary);
[[nodiscard]] Status read_json_post_processor(const Value& part, std::string_view path,
                                              Vocabulary& vocabulary);
[[nodiscard]] Status read_json_decoder(const Value& part, std::string_view path,
                                       Vocabulary& vocabulary);

}  // namespace kvarto
