// A cursor over outside bytes that cannot leave them.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace kvarto {

// The formats read here are little-endian and are read in place.
static_assert(std::endian::native == std::endian::little);

// Reads little-endian numbers and runs of bytes from the front. A read that does not fit returns
// nullopt and leaves the position where it was. Not thread-safe; cheap to copy.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] std::size_t position() const { return position_; }
  [[nodiscard]] std::size_t remaining() const { return bytes_.size() - position_; }

  template <typename Number>
  [[nodiscard]] std::optional<Number> read() {
    static_assert(std::is_arithmetic_v<Number>);
    if (remaining() < sizeof(Number)) return std::nullopt;
    Number number;
    std::memcpy(&number, bytes_.data() + position_, sizeof(Number));
    position_ += sizeof(Number);
    return number;
  }

  // A view of the next `count` bytes.
  [[nodiscard]] std::optional<std::string_view> read_bytes(std::uint64_t count) {
    if (remaining() < count) return std::nullopt;
    const auto* start = reinterpret_cast<const char*>(bytes_.data() + position_);
    position_ += static_cast<std::size_t>(count);
    return std::string_view(start, static_cast<std::size_t>(count));
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace kvarto
