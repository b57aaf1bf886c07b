// What a tokenizer is made of, as plain data: its tokens, and the rules by which text becomes them.
// The readers of model files fill it (vocabulary_file.h); Tokenizer (tokenizer.h) applies it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvarto {

// Index of a token in its vocabulary.
using TokenId = std::uint32_t;

enum class TokenKind : std::uint8_t {
  kNormal,
  kUnknown,      // stands for text that has no token
  kControl,      // parsed in text only where asked; decodes to nothing unless asked
  kUserDefined,  // always parsed in text, before everything else
  kUnused,       // as kNormal
  kByte,         // one byte, written <0xE2>
};

// How the pieces of a text grow together.
enum class PieceRule : std::uint8_t {
  kScoredMerges,  // neighbours whose concatenation is a token, highest score first
  kRankedMerges,  // neighbours that a list of merges names, in the order of the list
};

struct TokenMerge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId merged = 0;
};

// One change of the text before it is split, in order.
struct TextStep {
  enum class Kind : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd, kReplace, kPrepend };
  Kind kind = Kind::kReplace;
  std::string from;  // kReplace: every occurrence of these bytes
  std::string to;    // kReplace, kPrepend
};

// One splitting of every piece of text into smaller ones, in order. Text between matches is a
// piece.
struct SplitStep {
  enum class Behavior : std::uint8_t {
    kIsolated,
    kRemoved,
    kMergedWithPrevious,
    kMergedWithNext,
    kContiguous,  // as kIsolated, neighbouring matches are one piece
  };
  std::string pattern;
  bool is_literal = false;   // bytes to be found as they are; else a regular expression (PCRE2)
  bool is_inverted = false;  // the pattern matches what lies between
  Behavior behavior = Behavior::kIsolated;
};

// What is put before a text that has none of it.
struct TextPrefix {
  enum class Place : std::uint8_t {
    kNever,
    kStart,          // of the whole text
    kEveryFragment,  // and behind every special token
  };
  Place place = Place::kNever;
  std::string text;
  bool is_doubled = true;  // also before text that begins with it, or with a marked space
};

// White space around a special token that belongs to it.
struct TokenTrim {
  TokenId token = 0;
  bool has_left = false;
  bool has_right = false;
};

// Immutable plain data.
struct Vocabulary {
  std::string name;        // of the file, for messages
  std::string tokens_key;  // of the tokens in that file, for messages
  PieceRule rule = PieceRule::kScoredMerges;
  std::vector<std::string> tokens;  // as stored; byte-level ones spell bytes with letters
  std::vector<TokenKind> kinds;     // one a token
  std::vector<float> scores;        // one a token; kScoredMerges alone
  std::vector<TokenMerge> merges;   // kRankedMerges alone

  // The text is changed in this order: spaces, prefix, steps, splits.
  bool collapses_spaces = false;  // runs of spaces become one, those at the ends of the text none
  TextPrefix prefix;
  std::vector<TextStep> steps;
  std::vector<SplitStep> splits;
  std::vector<TokenTrim> trims;
  bool is_byte_level = false;      // tokens spell bytes as GPT-2 does
  bool has_byte_fallback = false;  // what has no token is spelled with kByte tokens
  bool fuses_unknown = false;      // neighbouring unknown pieces are one
  bool takes_whole_words = false;  // a word that is a token is not built from merges

  bool marks_spaces = false;       // tokens write a space as U+2581
  bool drops_first_space = false;  // of the whole text, when decoding

  std::optional<TokenId> bos, eos, unknown;
  bool adds_bos = false;
  bool adds_eos = false;
  std::vector<TokenId> ends;  // those that end a text, eos among them
};

}  // namespace kvarto
