// Reads tokenizer.model: a SentencePiece model, which is one protobuf message. The numbers of
// fields are those of sentencepiece_model.proto.

#include <fmt/format.h>

#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "base/byte_reader.h"
#include "base/printable.h"
#include "formats/token_names.h"
#include "formats/tokenizer_steps.h"
#include "kvarto/vocabulary_file.h"

namespace kvarto {
namespace {

// Types of fields in the encoding of protobuf.
enum class Wire : std::uint8_t { kNumber = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  std::uint64_t number = 0;
  Wire wire{};
  std::uint64_t value = 0;  // of kNumber and kFixed32
  std::string_view bytes;   // of kBytes
};

std::optional<std::uint64_t> read_varint(ByteReader& reader) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = reader.read<std::uint8_t>();
    if (!byte) return std::nullopt;
    value |= std::uint64_t{*byte & 0x7Fu} << shift;
    if (*byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<Field> read_field(ByteReader& reader) {
  const auto tag = read_varint(reader);
  if (!tag) return std::nullopt;
  Field field{*tag >> 3, static_cast<Wire>(*tag & 7), 0, {}};
  switch (field.wire) {
    case Wire::kNumber:
    case Wire::kBytes: {
      const auto value = read_varint(reader);
      if (!value) return std::nullopt;
      field.value = *value;
      if (field.wire == Wire::kNumber) return field;
      const auto bytes = reader.read_bytes(*value);
      if (!bytes) return std::nullopt;
      field.bytes = *bytes;
      return field;
    }
    case Wire::kFixed64:
      if (!reader.read<std::uint64_t>()) return std::nullopt;
      return field;
    case Wire::kFixed32: {
      const auto value = reader.read<std::uint32_t>();
      if (!value) return std::nullopt;
      field.value = *value;
      return field;
    }
  }
  return std::nullopt;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class Reader {
 public:
  explicit Reader(std::string_view name) {
    vocabulary_.name = name;
    vocabulary_.tokens_key = "pieces";
    vocabulary_.unknown = 0;
    vocabulary_.bos = 1;
    vocabulary_.eos = 2;
  }

  Result<Vocabulary> read(std::span<const std::byte> bytes) {
    KVARTO_CHECK_OK(each_field(bytes, "the model", [this](const Field& field) -> Status {
      if (field.number == 1 && field.wire == Wire::kBytes) return read_piece(field.bytes);
      if (field.number == 2 && field.wire == Wire::kBytes) return read_trainer(field.bytes);
      if (field.number == 3 && field.wire == Wire::kBytes) return read_normalizer(field.bytes);
      return {};
    }));
    if (vocabulary_.tokens.empty()) return bad("pieces", "found none");
    if (!is_bpe_) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: trainer_spec.model_type: found another kind than BPE (2)",
                              vocabulary_.name));
    }
    for (auto* token : {&vocabulary_.unknown, &vocabulary_.bos, &vocabulary_.eos}) {
      if (token->has_value() && **token >= vocabulary_.tokens.size()) token->reset();
    }
    // The file does not say; readers of the models that carry one add it.
    vocabulary_.adds_bos = vocabulary_.bos.has_value();
    vocabulary_.fuses_unknown = true;
    mark_spaces(vocabulary_, has_prefix_ ? TextPrefix::Place::kStart : TextPrefix::Place::kNever);
    add_ends_by_name(vocabulary_);
    return std::move(vocabulary_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> bad(std::string_view key, std::string_view what) const {
    return fail(ErrorCode::kCorruptData, fmt::format("{}: {}: {}", vocabulary_.name, key, what));
  }
  [[nodiscard]] tl::unexpected<Error> unsupported(std::string_view key,
                                                  std::string_view what) const {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: {}: {}", vocabulary_.name, key, what));
  }

  template <typename Visit>
  Status each_field(std::span<const std::byte> bytes, std::string_view what, Visit&& visit) {
    ByteReader reader(bytes);
    while (reader.remaining() > 0) {
      const std::size_t at = reader.position();
      const auto field = read_field(reader);
      if (!field) {
        return bad(what, fmt::format("byte {}: found no protobuf field that fits", at));
      }
      KVARTO_CHECK_OK(visit(*field));
    }
    return {};
  }

  Status read_piece(std::string_view bytes) {
    const std::string key = fmt::format("pieces[{}]", vocabulary_.tokens.size());
    std::string text;
    float score = 0;
    std::uint64_t number = 1;
    KVARTO_CHECK_OK(each_field(bytes_of(bytes), key, [&](const Field& field) -> Status {
      if (field.number == 1 && field.wire == Wire::kBytes) text = field.bytes;
      if (field.number == 2 && field.wire == Wire::kFixed32) {
        score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
      }
      if (field.number == 3 && field.wire == Wire::kNumber) number = field.value;
      return {};
    }));
    const auto kind = sentencepiece_kind(number);
    if (!kind) return bad(key, fmt::format("type: found {}, expected 1 to 6", number));
    if (text.empty()) return bad(key, "piece: found an empty one");
    if (vocabulary_.tokens.size() == kMaxVocabularyTokens) {
      return bad(key, fmt::format("expected at most {} pieces", kMaxVocabularyTokens));
    }
    vocabulary_.tokens.push_back(std::move(text));
    vocabulary_.scores.push_back(score);
    vocabulary_.kinds.push_back(*kind);
    return {};
  }

  Status read_trainer(std::string_view bytes) {
    return each_field(bytes_of(bytes), "trainer_spec", [this](const Field& field) -> Status {
      if (field.wire != Wire::kNumber) return {};
      // Negative numbers say that there is no such token.
      const auto token = [&field]() -> std::optional<TokenId> {
        if (field.value > 0x7FFF'FFFF) return std::nullopt;
        return static_cast<TokenId>(field.value);
      };
      if (field.number == 3) is_bpe_ = field.value == 2;
      if (field.number == 24 && field.value != 0) {
        return unsupported("trainer_spec.treat_whitespace_as_suffix", "found true");
      }
      if (field.number == 35) vocabulary_.has_byte_fallback = field.value != 0;
      if (field.number == 40) vocabulary_.unknown = token();
      if (field.number == 41) vocabulary_.bos = token();
      if (field.number == 42) vocabulary_.eos = token();
      return {};
    });
  }

  Status read_normalizer(std::string_view bytes) {
    vocabulary_.collapses_spaces = true;  // unless the file says otherwise
    return each_field(bytes_of(bytes), "normalizer_spec", [this](const Field& field) -> Status {
      if (field.number == 2 && !field.bytes.empty()) {
        return unsupported("normalizer_spec.precompiled_charsmap",
                           "found a table of characters, expected the normalizer identity");
      }
      if (field.wire != Wire::kNumber) return {};
      if (field.number == 3) has_prefix_ = field.value != 0;
      if (field.number == 4) vocabulary_.collapses_spaces = field.value != 0;
      if (field.number == 5 && field.value == 0) {
        return unsupported("normalizer_spec.escape_whitespaces", "found false");
      }
      return {};
    });
  }

  Vocabulary vocabulary_;
  bool is_bpe_ = false;
  bool has_prefix_ = true;
};

}  // namespace

Result<Vocabulary> read_sentencepiece_model(std::span<const std::byte> bytes,
                                            std::string_view name) {
  return Reader(name).read(bytes);
}

}  // namespace kvarto
