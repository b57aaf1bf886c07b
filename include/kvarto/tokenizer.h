// Text to tokens and back.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/result.h"
#include "kvarto/vocabulary.h"

namespace kvarto {

struct EncodeOptions {
  bool adds_ends = true;        // BOS and EOS, where the vocabulary says so
  bool parses_control = false;  // "<s>" in the text is the token, not three letters
};

// Const methods may be called concurrently.
class Tokenizer {
 public:
  // Errors: kCorruptData for a vocabulary that contradicts itself, naming file and key;
  // kInvalidArgument for a pattern that does not compile. Allocates a few times what the
  // vocabulary takes.
  [[nodiscard]] static Result<Tokenizer> create(Vocabulary vocabulary);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // The tokens of a text of valid UTF-8. O(n log n) for any text.
  // Errors: kInvalidArgument for invalid UTF-8, naming the byte, and for more than 2^30 bytes;
  // kCorruptData if the vocabulary has no token for a byte of the text; kUnsupported if a pattern
  // of the vocabulary needs too many steps.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text,
                                                    const EncodeOptions& options = {}) const;

  // The text of whole tokens: TokenDecoder over all of them. Ids beyond the vocabulary are nothing.
  [[nodiscard]] std::string decode(std::span<const TokenId> tokens) const;

  // The bytes that one token stands for: with spaces, without the rule for the first one. Control
  // tokens stand for nothing. The view lives as long as the tokenizer.
  [[nodiscard]] std::string_view bytes_of(TokenId token) const;
  // Whether the token ends a text.
  [[nodiscard]] bool is_end(TokenId token) const;
  [[nodiscard]] const Vocabulary& vocabulary() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Text out of tokens as they come. What it gives is valid UTF-8 at every step: the bytes of a
// character that is not complete are held back, and bytes that are none become U+FFFD.
// Not thread-safe; one owner. The tokenizer must outlive it.
class TokenDecoder {
 public:
  enum class Place : std::uint8_t {
    kStart,    // the first space may be the tokenizer's own, and is dropped then
    kMidText,  // other text lies before
  };
  explicit TokenDecoder(const Tokenizer& tokenizer, Place place = Place::kStart);

  // What became complete by this token.
  [[nodiscard]] std::string add(TokenId token);
  // What is held back, as U+FFFD.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::string take(bool is_end);

  const Tokenizer& tokenizer_;
  bool is_at_start_;
  std::string held_;
};

}  // namespace kvarto
