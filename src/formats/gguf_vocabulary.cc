#include "formats/gguf_vocabulary.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "base/byte_reader.h"
#include "base/printable.h"
#include "formats/byte_level_kinds.h"
#include "formats/token_names.h"
#include "formats/tokenizer_steps.h"

namespace kvarto {
namespace {

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kKindsKey = "tokenizer.ggml.token_type";
constexpr std::uint64_t kNone = 0xFFFF'FFFF;  // how some writers say that there is no such token

class Reader {
 public:
  Reader(const GgufHeader& header, std::string_view name) : header_(header) {
    vocabulary_.name = name;
    vocabulary_.tokens_key = kTokensKey;
  }

  Result<Vocabulary> read() {
    KVARTO_TRY(const std::string kind, text("model"));
    if (kind.empty() || kind == "none") {
      return fail(ErrorCode::kNotFound,
                  fmt::format("{}: tokenizer.ggml.model: found no vocabulary, expected llama or "
                              "gpt2",
                              vocabulary_.name));
    }
    if (kind != "llama" && kind != "gpt2") {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: tokenizer.ggml.model: found {}, expected llama or gpt2",
                              vocabulary_.name, printable(kind)));
    }
    KVARTO_CHECK_OK(read_tokens());
    KVARTO_CHECK_OK(read_kinds());
    KVARTO_CHECK_OK(kind == "llama" ? read_scored() : read_byte_level());
    KVARTO_CHECK_OK(read_ends());
    return std::move(vocabulary_);
  }

 private:
  [[nodiscard]] const GgufValue* find(std::string_view key) const {
    return header_.find(fmt::format("tokenizer.ggml.{}", key));
  }
  [[nodiscard]] tl::unexpected<Error> bad(std::string_view key, std::string_view what) const {
    return fail(ErrorCode::kCorruptData, fmt::format("{}: {}: {}", vocabulary_.name, key, what));
  }

  // "" if absent.
  Result<std::string> text(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::string();
    const auto string = gguf_string(*value);
    if (!string) return bad(fmt::format("tokenizer.ggml.{}", key), "expected a string");
    return std::string(*string);
  }

  Result<bool> boolean(std::string_view key, bool otherwise) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return otherwise;
    const auto number = gguf_unsigned(*value);
    if (value->type != GgufType::kBool || !number) {
      return bad(fmt::format("tokenizer.ggml.{}", key), "expected a bool");
    }
    return *number != 0;
  }

  // A token by its number; `otherwise` if the file does not say.
  Result<std::optional<TokenId>> token(std::string_view key, std::optional<TokenId> otherwise) {
    const GgufValue* value = find(key);
    if (value == nullptr) {
      if (otherwise.has_value() && *otherwise >= vocabulary_.tokens.size()) return std::nullopt;
      return otherwise;
    }
    const auto number = gguf_unsigned(*value);
    if (number == kNone) return std::nullopt;
    if (!number || *number >= vocabulary_.tokens.size()) {
      return bad(fmt::format("tokenizer.ggml.{}", key),
                 fmt::format("found {}, expected a number below {}",
                             number ? fmt::format("{}", *number) : "no number",
                             vocabulary_.tokens.size()));
    }
    return static_cast<TokenId>(*number);
  }

  Status read_tokens() {
    const GgufValue* value = header_.find(kTokensKey);
    const auto tokens = value != nullptr ? gguf_strings(*value) : std::nullopt;
    if (!tokens || tokens->empty()) return bad(kTokensKey, "expected a list of strings");
    if (tokens->size() > kMaxVocabularyTokens) {
      return bad(kTokensKey, fmt::format("found {} tokens, expected at most {}", tokens->size(),
                                         kMaxVocabularyTokens));
    }
    vocabulary_.tokens.assign(tokens->begin(), tokens->end());
    return {};
  }

  // The numbers that llama.cpp gives the kinds are those of SentencePiece.
  Status read_kinds() {
    const std::size_t num_tokens = vocabulary_.tokens.size();
    const GgufValue* value = header_.find(kKindsKey);
    if (value == nullptr) {
      vocabulary_.kinds.assign(num_tokens, TokenKind::kNormal);
      return {};
    }
    const bool is_list =
        value->is_array && (value->type == GgufType::kInt32 || value->type == GgufType::kUint32);
    if (!is_list || value->count != num_tokens) {
      return bad(kKindsKey, fmt::format("found {} entries, expected {} numbers of 32 bits",
                                        value->count, num_tokens));
    }
    ByteReader reader(value->bytes);
    for (std::size_t i = 0; i < num_tokens; ++i) {
      const std::uint32_t number = reader.read<std::uint32_t>().value_or(0);
      const auto kind = sentencepiece_kind(number);
      if (!kind) {
        return bad(kKindsKey, fmt::format("entry {}: found {}, expected 1 to 6", i, number));
      }
      vocabulary_.kinds.push_back(*kind);
    }
    return {};
  }

  Status read_scores() {
    const GgufValue* value = header_.find(kScoresKey);
    const std::size_t num_tokens = vocabulary_.tokens.size();
    if (value == nullptr || !value->is_array || value->type != GgufType::kFloat32 ||
        value->count != num_tokens) {
      return bad(kScoresKey, fmt::format("found {} entries, expected {} numbers of type f32",
                                         value == nullptr ? 0 : value->count, num_tokens));
    }
    ByteReader reader(value->bytes);
    vocabulary_.scores.reserve(num_tokens);
    for (std::size_t i = 0; i < num_tokens; ++i) {
      vocabulary_.scores.push_back(reader.read<float>().value_or(0));
    }
    return {};
  }

  // Numbers of special tokens that the file does not name are those of Llama 2.
  Status read_scored() {
    KVARTO_CHECK_OK(read_scores());
    KVARTO_TRY(const bool has_prefix, boolean("add_space_prefix", true));
    mark_spaces(vocabulary_,
                has_prefix ? TextPrefix::Place::kEveryFragment : TextPrefix::Place::kNever);
    vocabulary_.has_byte_fallback = true;
    if (header_.find(kKindsKey) == nullptr) name_bytes();
    KVARTO_TRY(vocabulary_.bos, token("bos_token_id", 1));
    KVARTO_TRY(vocabulary_.eos, token("eos_token_id", 2));
    KVARTO_TRY(vocabulary_.unknown, token("unknown_token_id", 0));
    KVARTO_TRY(vocabulary_.adds_bos, boolean("add_bos_token", true));
    KVARTO_TRY(vocabulary_.adds_eos, boolean("add_eos_token", false));
    return {};
  }

  // In files without kinds, bytes are known by their names.
  void name_bytes() {
    for (std::size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      const std::string& text = vocabulary_.tokens[i];
      if (text.size() == 6 && text.starts_with("<0x")) vocabulary_.kinds[i] = TokenKind::kByte;
    }
  }

  Status read_byte_level() {
    KVARTO_TRY(const std::string pre, text("pre"));
    const ByteLevelKind* kind = byte_level_kind(pre);
    if (kind == nullptr) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: tokenizer.ggml.pre: found {}, expected a known way to split "
                              "text, as llama-bpe, qwen2, gpt-2",
                              vocabulary_.name, printable(pre)));
    }
    vocabulary_.rule = PieceRule::kRankedMerges;
    vocabulary_.is_byte_level = true;
    vocabulary_.takes_whole_words = kind->takes_whole_words;
    for (const std::string_view pattern : kind->patterns) {
      vocabulary_.splits.push_back({.pattern = std::string(pattern)});
    }
    KVARTO_TRY(const bool has_prefix, boolean("add_space_prefix", false));
    if (has_prefix) {
      vocabulary_.prefix = {TextPrefix::Place::kEveryFragment, " ", true};
      vocabulary_.drops_first_space = true;
    }
    KVARTO_TRY(vocabulary_.bos, token("bos_token_id", std::nullopt));
    KVARTO_TRY(vocabulary_.eos, token("eos_token_id", std::nullopt));
    KVARTO_TRY(vocabulary_.unknown, token("unknown_token_id", std::nullopt));
    KVARTO_TRY(vocabulary_.adds_bos, boolean("add_bos_token", kind->adds_bos));
    KVARTO_TRY(vocabulary_.adds_eos, boolean("add_eos_token", false));
    return read_merges();
  }

  Status read_merges() {
    const GgufValue* value = header_.find(kMergesKey);
    const auto merges = value != nullptr ? gguf_strings(*value) : std::nullopt;
    if (!merges) return bad(kMergesKey, "expected a list of strings");
    const MergeReader reader(vocabulary_);
    vocabulary_.merges.reserve(merges->size());
    for (std::size_t i = 0; i < merges->size(); ++i) {
      KVARTO_TRY(const TokenMerge merge,
                 reader.merge((*merges)[i], fmt::format("{}[{}]", kMergesKey, i)));
      vocabulary_.merges.push_back(merge);
    }
    return {};
  }

  Status read_ends() {
    for (const std::string_view key : {"eot_token_id", "eom_token_id"}) {
      KVARTO_TRY(const auto end, token(key, std::nullopt));
      if (end.has_value()) vocabulary_.ends.push_back(*end);
    }
    add_ends_by_name(vocabulary_);
    return {};
  }

  const GgufHeader& header_;
  Vocabulary vocabulary_;
};

}  // namespace

Result<Vocabulary> read_gguf_vocabulary(const GgufHeader& header, std::string_view name) {
  return Reader(header, name).read();
}

}  // namespace kvarto
