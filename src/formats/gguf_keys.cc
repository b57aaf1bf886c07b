#include "formats/gguf_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/byte_reader.h"
#include "base/printable.h"

namespace kvarto {
namespace {

template <typename Number>
std::optional<Value> read_number(ByteReader& reader) {
  const auto number = reader.read<Number>();
  if (!number) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>) return Value{static_cast<double>(*number)};
  if constexpr (std::is_same_v<Number, std::uint64_t>) {
    if (*number > std::uint64_t{INT64_MAX}) return Value{static_cast<double>(*number)};
  }
  return Value{static_cast<std::int64_t>(*number)};
}

std::optional<Value> read_element(ByteReader& reader, GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return read_number<std::uint8_t>(reader);
    case GgufType::kInt8:
      return read_number<std::int8_t>(reader);
    case GgufType::kUint16:
      return read_number<std::uint16_t>(reader);
    case GgufType::kInt16:
      return read_number<std::int16_t>(reader);
    case GgufType::kUint32:
      return read_number<std::uint32_t>(reader);
    case GgufType::kInt32:
      return read_number<std::int32_t>(reader);
    case GgufType::kUint64:
      return read_number<std::uint64_t>(reader);
    case GgufType::kInt64:
      return read_number<std::int64_t>(reader);
    case GgufType::kFloat32:
      return read_number<float>(reader);
    case GgufType::kFloat64:
      return read_number<double>(reader);
    case GgufType::kBool: {
      const auto byte = reader.read<std::uint8_t>();
      if (!byte) return std::nullopt;
      return Value{*byte != 0};
    }
    case GgufType::kString: {
      const auto length = reader.read<std::uint64_t>();
      const auto text = length ? reader.read_bytes(*length) : std::nullopt;
      if (!text) return std::nullopt;
      return Value{std::string(*text)};
    }
    case GgufType::kArray:
      break;
  }
  return std::nullopt;
}

std::optional<Value> read_value(const GgufValue& value) {
  ByteReader reader(value.bytes);
  if (!value.is_array) return read_element(reader, value.type);
  if (value.count > static_cast<std::uint64_t>(kMaxLayers)) return std::nullopt;
  ValueList list;
  list.reserve(static_cast<std::size_t>(value.count));
  for (std::uint64_t i = 0; i < value.count; ++i) {
    auto element = read_element(reader, value.type);
    if (!element) return std::nullopt;
    list.push_back(std::move(*element));
  }
  return Value{std::move(list)};
}

}  // namespace

Result<GgufModelKeys> read_gguf_keys(const GgufHeader& header, std::string_view where) {
  constexpr std::string_view kKey = "general.architecture";
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_.-";
  const GgufValue* value = header.find(kKey);
  if (value == nullptr) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: {}: missing, expected the name of an architecture", where, kKey));
  }
  const std::string_view name = gguf_string(*value).value_or("");
  if (name.empty() || name.find_first_not_of(kLetters) != std::string_view::npos) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: {}: found \"{}\", expected the name of an architecture in small "
                            "letters and digits",
                            where, kKey, printable(name)));
  }
  GgufModelKeys keys{.architecture = std::string(name), .values = {}};
  auto& map = keys.values.data.emplace<ValueMap>();
  for (const GgufKey& key : header.keys) {
    if (!key.name.starts_with(name) || !key.name.substr(name.size()).starts_with('.')) continue;
    auto copy = read_value(key.value);
    if (copy) map.push_back({std::string(key.name.substr(name.size() + 1)), std::move(*copy)});
  }
  const GgufValue* tokens = header.find("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->is_array) keys.num_tokens = tokens->count;
  return keys;
}

}  // namespace kvarto
