#include "base/byte_reader.h"
#include "formats/gguf.h"

namespace kvarto {
namespace {

template <typename Number>
std::optional<std::uint64_t> unsigned_from(std::span<const std::byte> bytes) {
  const auto number = ByteReader(bytes).read<Number>();
  if (!number || *number < Number{0}) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

}  // namespace

std::optional<std::uint64_t> gguf_unsigned(const GgufValue& value) {
  if (value.is_array) return std::nullopt;
  switch (value.type) {
    case GgufType::kUint8:
    case GgufType::kBool:
      return unsigned_from<std::uint8_t>(value.bytes);
    case GgufType::kInt8:
      return unsigned_from<std::int8_t>(value.bytes);
    case GgufType::kUint16:
      return unsigned_from<std::uint16_t>(value.bytes);
    case GgufType::kInt16:
      return unsigned_from<std::int16_t>(value.bytes);
    case GgufType::kUint32:
      return unsigned_from<std::uint32_t>(value.bytes);
    case GgufType::kInt32:
      return unsigned_from<std::int32_t>(value.bytes);
    case GgufType::kUint64:
      return unsigned_from<std::uint64_t>(value.bytes);
    case GgufType::kInt64:
      return unsigned_from<std::int64_t>(value.bytes);
    default:
      return std::nullopt;
  }
}

std::optional<std::string_view> gguf_string(const GgufValue& value) {
  if (value.is_array || value.type != GgufType::kString) return std::nullopt;
  ByteReader reader(value.bytes);
  const auto length = reader.read<std::uint64_t>();
  return length ? reader.read_bytes(*length) : std::nullopt;
}

std::optional<std::vector<std::string_view>> gguf_strings(const GgufValue& value) {
  if (!value.is_array || value.type != GgufType::kString) return std::nullopt;
  std::vector<std::string_view> strings;
  strings.reserve(static_cast<std::size_t>(value.count));
  ByteReader reader(value.bytes);
  for (std::uint64_t i = 0; i < value.count; ++i) {
    const auto length = reader.read<std::uint64_t>();
    const auto text = length ? reader.read_bytes(*length) : std::nullopt;
    if (!text) return std::nullopt;
    strings.push_back(*text);
  }
  return strings;
}

}  // namespace kvarto
