#include "kvarto/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/normalize.h"
#include "text/piece_encoder.h"
#include "text/special_tokens.h"
#include "text/splitter.h"

namespace kvarto {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;
constexpr std::size_t kMaxTokens = std::size_t{1} << 28;
constexpr std::string_view kSpaceMark = "\u2581";

tl::unexpected<Error> bad(const Vocabulary& vocabulary, std::string_view what) {
  return fail(ErrorCode::kCorruptData, fmt::format("{}: {}", vocabulary.name, what));
}

Status check_ids(const Vocabulary& vocabulary) {
  const std::size_t num_tokens = vocabulary.tokens.size();
  const auto check = [&](TokenId token, std::string_view what) -> Status {
    if (token < num_tokens) return {};
    return bad(vocabulary,
               fmt::format("{}: found token {}, expected one below {}", what, token, num_tokens));
  };
  if (vocabulary.bos) KVARTO_CHECK_OK(check(*vocabulary.bos, "the token that begins a text"));
  if (vocabulary.eos) KVARTO_CHECK_OK(check(*vocabulary.eos, "the token that ends a text"));
  if (vocabulary.unknown) KVARTO_CHECK_OK(check(*vocabulary.unknown, "the unknown token"));
  for (const TokenId token : vocabulary.ends) KVARTO_CHECK_OK(check(token, "an end of texts"));
  for (const TokenTrim& trim : vocabulary.trims) KVARTO_CHECK_OK(check(trim.token, "a trim"));
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const TokenMerge& merge = vocabulary.merges[i];
    const std::string what = fmt::format("merge {}", i);
    for (const TokenId token : {merge.left, merge.right, merge.merged}) {
      if (token >= num_tokens) return check(token, what);
    }
  }
  return {};
}

Status check(const Vocabulary& vocabulary) {
  const std::size_t num_tokens = vocabulary.tokens.size();
  const bool is_scored = vocabulary.rule == PieceRule::kScoredMerges;
  if (num_tokens == 0 || num_tokens > kMaxTokens) {
    return bad(vocabulary, fmt::format("{}: found {} tokens, expected 1 to {}",
                                       vocabulary.tokens_key, num_tokens, kMaxTokens));
  }
  if (vocabulary.kinds.size() != num_tokens) {
    return bad(vocabulary, fmt::format("kinds of tokens: found {}, expected one for each of {}",
                                       vocabulary.kinds.size(), num_tokens));
  }
  if (is_scored && vocabulary.scores.size() != num_tokens) {
    return bad(vocabulary, fmt::format("scores: found {}, expected one for each of {} tokens",
                                       vocabulary.scores.size(), num_tokens));
  }
  for (std::size_t i = 0; is_scored && i < num_tokens; ++i) {
    if (std::isnan(vocabulary.scores[i])) {
      return bad(vocabulary, fmt::format("score {}: found NaN, expected a number", i));
    }
  }
  if (vocabulary.merges.size() > kMaxTokens) {
    return bad(vocabulary, fmt::format("merges: found {}, expected at most {}",
                                       vocabulary.merges.size(), kMaxTokens));
  }
  for (const TextStep& step : vocabulary.steps) {
    if (step.kind == TextStep::Kind::kReplace && step.from.empty()) {
      return bad(vocabulary, "normalizer: found an empty text to replace");
    }
  }
  return check_ids(vocabulary);
}

std::string with_spaces(std::string_view token) {
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    const bool is_mark = token.substr(at).starts_with(kSpaceMark);
    out += is_mark ? ' ' : token[at];
    at += is_mark ? kSpaceMark.size() : 1;
  }
  return out;
}

// The bytes that a token stands for in a text.
std::string decoded(const Vocabulary& vocabulary, TokenId token) {
  const std::string& text = vocabulary.tokens[token];
  switch (vocabulary.kinds[token]) {
    case TokenKind::kControl:
      return "";
    case TokenKind::kUnknown:
      return "\uFFFD";
    case TokenKind::kUserDefined:
      return text;
    case TokenKind::kByte:
      if (const auto byte = byte_named(text)) return std::string(1, static_cast<char>(*byte));
      return text;
    case TokenKind::kNormal:
    case TokenKind::kUnused:
      break;
  }
  if (vocabulary.is_byte_level) return bytes_spelled(text);
  return vocabulary.marks_spaces ? with_spaces(text) : text;
}

Status check_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the text: byte {}: found 0x{:02X}, expected UTF-8", at,
                              static_cast<unsigned char>(text[at])));
    }
    at += length;
  }
  return {};
}

}  // namespace

struct Tokenizer::State {
  State(Vocabulary given, std::vector<std::string> of_tokens, SpecialTokens found, Splitter parts)
      : vocabulary(std::move(given)),
        bytes(std::move(of_tokens)),
        special(std::move(found)),
        splitter(std::move(parts)),
        pieces(vocabulary, vocabulary.is_byte_level ? bytes : vocabulary.tokens) {}

  Vocabulary vocabulary;
  std::vector<std::string> bytes;  // that tokens stand for
  SpecialTokens special;           // views of the vocabulary's tokens, which moving leaves in place
  Splitter splitter;
  PieceEncoder pieces;

  // Text at its place among fragments.
  struct Fragment {
    std::string_view text;
    bool is_first = false;
    bool is_last = false;
  };
  Status append_text(const Fragment& fragment, std::vector<TokenId>& out) const;
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Result<Tokenizer> Tokenizer::create(Vocabulary vocabulary) {
  KVARTO_CHECK_OK(check(vocabulary));
  KVARTO_TRY(Splitter splitter, Splitter::create(vocabulary));
  KVARTO_TRY(SpecialTokens special, SpecialTokens::create(vocabulary));
  std::vector<std::string> bytes;
  bytes.reserve(vocabulary.tokens.size());
  for (TokenId token = 0; token < vocabulary.tokens.size(); ++token) {
    bytes.push_back(decoded(vocabulary, token));
  }
  return Tokenizer(std::make_unique<State>(std::move(vocabulary), std::move(bytes),
                                           std::move(special), std::move(splitter)));
}

Status Tokenizer::State::append_text(const Fragment& fragment, std::vector<TokenId>& out) const {
  std::string collapsed;
  std::string_view text = fragment.text;
  if (vocabulary.collapses_spaces) {
    collapsed = with_single_spaces(text, fragment.is_first, fragment.is_last);
    text = collapsed;
    if (text.empty()) return {};
  }
  const TextPrefix& prefix = vocabulary.prefix;
  const bool is_place = prefix.place == TextPrefix::Place::kEveryFragment ||
                        (prefix.place == TextPrefix::Place::kStart && fragment.is_first);
  std::string prefixed;
  const bool has_prefix =
      text.starts_with(prefix.text) || (vocabulary.marks_spaces && text.starts_with(kSpaceMark));
  if (is_place && (prefix.is_doubled || !has_prefix)) prefixed = prefix.text;
  prefixed += text;
  KVARTO_TRY(const std::string plain, normalized(prefixed, vocabulary));
  KVARTO_TRY(const std::vector<std::string_view> words, splitter.split(plain));
  for (const std::string_view word : words) KVARTO_CHECK_OK(pieces.append(word, out));
  return {};
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the text: found {} bytes, expected at most {}", text.size(), kMaxTextBytes));
  }
  KVARTO_CHECK_OK(check_utf8(text));
  const Vocabulary& rules = state_->vocabulary;
  std::vector<TokenId> out;
  if (options.adds_ends && rules.adds_bos && rules.bos) out.push_back(*rules.bos);
  const std::vector<TextFragment> fragments =
      state_->special.partition(text, options.parses_control);
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    if (fragments[i].token.has_value()) {
      out.push_back(*fragments[i].token);
    } else {
      KVARTO_CHECK_OK(
          state_->append_text({fragments[i].text, i == 0, i + 1 == fragments.size()}, out));
    }
  }
  if (options.adds_ends && rules.adds_eos && rules.eos) out.push_back(*rules.eos);
  return out;
}

std::string_view Tokenizer::bytes_of(TokenId token) const {
  return token < state_->bytes.size() ? std::string_view(state_->bytes[token]) : "";
}

bool Tokenizer::is_end(TokenId token) const {
  const std::vector<TokenId>& ends = state_->vocabulary.ends;
  return state_->vocabulary.eos == token ||
         std::find(ends.begin(), ends.end(), token) != ends.end();
}

const Vocabulary& Tokenizer::vocabulary() const { return state_->vocabulary; }

}  // namespace kvarto
