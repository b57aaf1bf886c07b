// A file's bytes, mapped for reading: opening a large file costs the pages that are touched.

#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kvarto/result.h"

namespace kvarto {

// Owns one read-only mapping. Const methods may be called concurrently.
//
// The file must not be cut short while it is mapped: the system then ends the process on the
// first touch of a missing page.
class MappedFile {
 public:
  // Maps the whole file. An empty file gives empty bytes.
  // Errors: kNotFound if there is no such file; kIo if it cannot be opened or mapped;
  // kInvalidArgument if it is a folder, a pipe or a device (which could block or never end).
  [[nodiscard]] static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace kvarto
