// Writes safetensors files in memory from a header's text: samples for tests.

#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace kvarto::samples {

// The length, the header and `data_bytes` zeros.
[[nodiscard]] inline std::string safetensors(std::string_view header, std::uint64_t data_bytes) {
  std::string file(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(header).append(data_bytes, '\0');
}

}  // namespace kvarto::samples
