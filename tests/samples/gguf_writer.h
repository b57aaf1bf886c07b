// Writes small GGUF files in memory, well-formed unless told otherwise: samples for tests.

#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarto::samples {

// Appends fields in the order in which they are asked for; alignment is the caller's affair.
class GgufWriter {
 public:
  GgufWriter(std::uint64_t num_tensors, std::uint64_t num_keys, std::uint32_t version = 3) {
    raw("GGUF");
    number<std::uint32_t>(version);
    number<std::uint64_t>(num_tensors);
    number<std::uint64_t>(num_keys);
  }

  template <typename Number>
  GgufWriter& number(Number value) {
    char bytes[sizeof(Number)];
    std::memcpy(bytes, &value, sizeof(Number));
    bytes_.append(bytes, sizeof(Number));
    return *this;
  }
  GgufWriter& raw(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  GgufWriter& text(std::string_view value) {
    return number<std::uint64_t>(value.size()).raw(value);
  }
  GgufWriter& key(std::string_view name, std::uint32_t type) {
    return text(name).number<std::uint32_t>(type);
  }
  GgufWriter& u32(std::string_view name, std::uint32_t value) {
    return key(name, 4).number<std::uint32_t>(value);
  }
  GgufWriter& string(std::string_view name, std::string_view value) {
    return key(name, 8).text(value);
  }
  GgufWriter& strings(std::string_view name, const std::vector<std::string>& values) {
    key(name, 9).number<std::uint32_t>(8).number<std::uint64_t>(values.size());
    for (const std::string& value : values) text(value);
    return *this;
  }
  GgufWriter& u32s(std::string_view name, const std::vector<std::uint32_t>& values) {
    key(name, 9).number<std::uint32_t>(4).number<std::uint64_t>(values.size());
    for (const std::uint32_t value : values) number<std::uint32_t>(value);
    return *this;
  }
  GgufWriter& bools(std::string_view name, const std::vector<bool>& values) {
    key(name, 9).number<std::uint32_t>(7).number<std::uint64_t>(values.size());
    for (const bool value : values) number<std::uint8_t>(value ? 1 : 0);
    return *this;
  }
  GgufWriter& tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                     std::uint32_t type, std::uint64_t offset) {
    text(name).number<std::uint32_t>(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) number<std::uint64_t>(dim);
    return number<std::uint32_t>(type).number<std::uint64_t>(offset);
  }
  // Pads to `alignment` and appends `count` bytes of tensor data.
  GgufWriter& payload(std::uint64_t count, std::uint64_t alignment = 32) {
    while (bytes_.size() % alignment != 0) bytes_.push_back('\0');
    bytes_.append(count, '\0');
    return *this;
  }

  [[nodiscard]] const std::string& str() const { return bytes_; }

 private:
  std::string bytes_;
};

[[nodiscard]] inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace kvarto::samples
