// Folders of tests: a temporary one of their own, and the optional shared collection of files.

#pragma once

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace kvarto::samples {

// A fresh folder, removed with all it holds at the end of its scope.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvarto-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  // Writes a file and returns its path.
  std::string write(std::string_view name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file.string();
  }
  [[nodiscard]] std::string path(std::string_view name = "") const {
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

// The collection of real files beside the repository (or where KVARTO_SHARED says), if present.
[[nodiscard]] inline std::optional<std::filesystem::path> shared_folder() {
  const char* place = std::getenv("KVARTO_SHARED");
  const std::filesystem::path folder =
      place != nullptr ? place : std::filesystem::path(KVARTO_SOURCE_DIR) / ".." / "shared";
  if (!std::filesystem::is_directory(folder / "data")) return std::nullopt;
  return folder / "data";
}

}  // namespace kvarto::samples
