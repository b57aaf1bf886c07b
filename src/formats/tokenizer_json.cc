// Reads tokenizer.json: a byte-pair encoding as the tokenizers library of Hugging Face writes it.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/printable.h"
#include "formats/json_value.h"
#include "formats/token_names.h"
#include "formats/tokenizer_json_steps.h"
#include "formats/tokenizer_steps.h"
#include "kvarto/vocabulary_file.h"
#include "spec/keys.h"

namespace kvarto {
namespace {

// Numbers of tokens may have holes, but none that a list of them would be larger than the file.
constexpr std::size_t kMaxHoles = 1 << 16;

class Reader {
 public:
  Reader(const Value& root, std::string_view name) : root_(root) {
    vocabulary_.name = name;
    vocabulary_.tokens_key = "model.vocab";
    vocabulary_.rule = PieceRule::kRankedMerges;
  }

  Result<Vocabulary> read() {
    KVARTO_TRY(const Value* model, part("model"));
    const auto* vocab = list_of<ValueMap>(model->find("vocab"));
    const std::string type = text_at(*model, "type").value_or("BPE");
    if (type != "BPE") {
      return fail(ErrorCode::kUnsupported, fmt::format("{}: model.type: found {}, expected BPE",
                                                       vocabulary_.name, printable(type)));
    }
    if (vocab == nullptr || vocab->empty()) return bad("model.vocab", "expected a map of tokens");
    KVARTO_CHECK_OK(read_tokens(*vocab));
    KVARTO_CHECK_OK(read_model(*model));
    KVARTO_CHECK_OK(read_added());
    KVARTO_CHECK_OK(read_merges(*model));
    KVARTO_CHECK_OK(read_steps());
    add_ends_by_name(vocabulary_);
    return std::move(vocabulary_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> bad(std::string_view key, std::string_view what) const {
    return fail(ErrorCode::kCorruptData, fmt::format("{}: {}: {}", vocabulary_.name, key, what));
  }

  template <typename List>
  static const List* list_of(const Value* value) {
    return value != nullptr ? std::get_if<List>(&value->data) : nullptr;
  }
  static std::optional<std::string> text_at(const Value& map, std::string_view key) {
    const auto* text = list_of<std::string>(map.find(key));
    return text != nullptr ? std::optional(*text) : std::nullopt;
  }
  static bool flag_at(const Value& map, std::string_view key) {
    const bool* flag = list_of<bool>(map.find(key));
    return flag != nullptr && *flag;
  }

  Result<const Value*> part(std::string_view key) const {
    const Value* value = root_.find(key);
    if (value == nullptr || !std::holds_alternative<ValueMap>(value->data)) {
      return bad(key, "expected a map");
    }
    return value;
  }

  // Makes room for token `number`, which `key` names.
  Result<TokenId> token_at(const Value* number, std::size_t max, std::string_view key) {
    const auto* id = list_of<std::int64_t>(number);
    if (id == nullptr || *id < 0 || static_cast<std::uint64_t>(*id) >= max) {
      return bad(key, fmt::format("found {}, expected a number below {}",
                                  number == nullptr ? "nothing" : describe(*number), max));
    }
    const auto token = static_cast<TokenId>(*id);
    if (token >= vocabulary_.tokens.size()) {
      vocabulary_.tokens.resize(token + std::size_t{1});
      vocabulary_.kinds.resize(token + std::size_t{1}, TokenKind::kUnused);
    }
    return token;
  }

  Status read_tokens(const ValueMap& vocab) {
    const std::size_t max = std::min(vocab.size() * 2 + kMaxHoles, kMaxVocabularyTokens);
    for (const ValueMember& member : vocab) {
      const std::string key = fmt::format("model.vocab.{}", printable(member.name));
      KVARTO_TRY(const TokenId token, token_at(&member.value, max, key));
      if (vocabulary_.kinds[token] != TokenKind::kUnused) {
        return bad(key, fmt::format("found the number {} of another token", token));
      }
      vocabulary_.tokens[token] = member.name;
      vocabulary_.kinds[token] = TokenKind::kNormal;
    }
    return {};
  }

  Status read_model(const Value& model) {
    for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!text_at(model, key).value_or("").empty()) return unsupported(key);
    }
    if (const Value* dropout = model.find("dropout"); dropout != nullptr && !dropout->is_null()) {
      return unsupported("dropout");
    }
    vocabulary_.has_byte_fallback = flag_at(model, "byte_fallback");
    vocabulary_.fuses_unknown = flag_at(model, "fuse_unk");
    vocabulary_.takes_whole_words = flag_at(model, "ignore_merges");
    if (vocabulary_.has_byte_fallback) {
      for (std::size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
        const std::string& text = vocabulary_.tokens[i];
        if (text.size() == 6 && text.starts_with("<0x")) vocabulary_.kinds[i] = TokenKind::kByte;
      }
    }
    const auto unknown = text_at(model, "unk_token");
    if (!unknown.has_value()) return {};
    const auto& tokens = vocabulary_.tokens;
    const auto found = std::find(tokens.begin(), tokens.end(), *unknown);
    if (found == tokens.end()) {
      return bad("model.unk_token",
                 fmt::format("found {}, expected a token of model.vocab", printable(*unknown)));
    }
    vocabulary_.unknown = static_cast<TokenId>(found - tokens.begin());
    return {};
  }

  [[nodiscard]] tl::unexpected<Error> unsupported(std::string_view key) const {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: model.{}: found a value, which is not supported", vocabulary_.name, key));
  }

  Status read_added() {
    const auto* added = list_of<ValueList>(root_.find("added_tokens"));
    if (added == nullptr) return {};
    const std::size_t max =
        std::min(vocabulary_.tokens.size() + added->size() * 2 + kMaxHoles, kMaxVocabularyTokens);
    for (std::size_t i = 0; i < added->size(); ++i) {
      const std::string key = fmt::format("added_tokens[{}]", i);
      const Value& each = (*added)[i];
      const auto content = text_at(each, "content");
      if (!content.has_value() || content->empty()) return bad(key, "content: expected a text");
      KVARTO_TRY(const TokenId token, token_at(each.find("id"), max, key + ".id"));
      if (flag_at(each, "single_word")) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{}: {}.single_word: found true, which is not supported",
                                vocabulary_.name, key));
      }
      std::string& text = vocabulary_.tokens[token];
      if (!text.empty() && text != *content) {
        return bad(key, fmt::format("found the number {} of another token", token));
      }
      text = *content;
      vocabulary_.kinds[token] =
          flag_at(each, "special") ? TokenKind::kControl : TokenKind::kUserDefined;
      const TokenTrim trim{token, flag_at(each, "lstrip"), flag_at(each, "rstrip")};
      if (trim.has_left || trim.has_right) vocabulary_.trims.push_back(trim);
    }
    if (vocabulary_.unknown) vocabulary_.kinds[*vocabulary_.unknown] = TokenKind::kUnknown;
    return {};
  }

  Status read_merges(const Value& model) {
    const auto* merges = list_of<ValueList>(model.find("merges"));
    if (merges == nullptr) return bad("model.merges", "expected a list");
    const MergeReader reader(vocabulary_);
    vocabulary_.merges.reserve(merges->size());
    for (std::size_t i = 0; i < merges->size(); ++i) {
      const std::string key = fmt::format("model.merges[{}]", i);
      const Value& merge = (*merges)[i];
      if (const auto* both = list_of<std::string>(&merge)) {
        KVARTO_TRY(const TokenMerge found, reader.merge(*both, key));
        vocabulary_.merges.push_back(found);
        continue;
      }
      const auto* pair = list_of<ValueList>(&merge);
      const bool is_pair = pair != nullptr && pair->size() == 2;
      const auto* left = is_pair ? list_of<std::string>(&(*pair)[0]) : nullptr;
      const auto* right = is_pair ? list_of<std::string>(&(*pair)[1]) : nullptr;
      if (left == nullptr || right == nullptr) return bad(key, "expected two tokens");
      KVARTO_TRY(const TokenMerge found, reader.merge(*left, *right, key));
      vocabulary_.merges.push_back(found);
    }
    return {};
  }

  Status read_steps() {
    const auto at = [this](std::string_view key) -> const Value& {
      static const Value kNull;
      const Value* value = root_.find(key);
      return value != nullptr ? *value : kNull;
    };
    KVARTO_CHECK_OK(read_json_normalizer(at("normalizer"), "normalizer", vocabulary_));
    KVARTO_CHECK_OK(read_json_pre_tokenizer(at("pre_tokenizer"), "pre_tokenizer", vocabulary_));
    KVARTO_CHECK_OK(read_json_post_processor(at("post_processor"), "post_processor", vocabulary_));
    return read_json_decoder(at("decoder"), "decoder", vocabulary_);
  }

  const Value& root_;
  Vocabulary vocabulary_;
};

}  // namespace

Result<Vocabulary> read_tokenizer_json(std::string_view text, std::string_view name) {
  KVARTO_TRY(const Value root, parse_json(text, name));
  return Reader(root, name).read();
}

}  // namespace kvarto
