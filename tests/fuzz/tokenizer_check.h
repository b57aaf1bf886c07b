// Uses a vocabulary that a reader accepted: it must encode and decode without harm.

#pragma once

#include <cstdlib>
#include <string>
#include <utility>

#include "kvarto/tokenizer.h"

namespace kvarto {

inline void check_tokenizer(Result<Vocabulary> vocabulary) {
  if (!vocabulary.has_value()) return;
  const auto tokenizer = Tokenizer::create(std::move(*vocabulary));
  if (!tokenizer.has_value()) return;
  const std::size_t num_tokens = tokenizer->vocabulary().tokens.size();
  for (const char* text : {"", "a b  ab\n<s>abc </s>", "\u2581\u00e9\u4e00\U0001F600 x1234"}) {
    const auto tokens = tokenizer->encode(text, {.adds_ends = true, .parses_control = true});
    if (!tokens.has_value()) continue;
    for (const TokenId token : *tokens) {
      if (token >= num_tokens) std::abort();
    }
    (void)tokenizer->decode(*tokens);
  }
  for (TokenId token = 0; token <= num_tokens; ++token) (void)tokenizer->bytes_of(token);
}

}  // namespace kvarto
