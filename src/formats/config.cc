// Opens a model by path or name, and reads Hugging Face's config.json.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "formats/gguf_model.h"
#include "formats/json_value.h"
#include "formats/safetensors_model.h"
#include "kvarto/catalogue.h"
#include "kvarto/model_file.h"
#include "spec/families.h"

namespace kvarto {
namespace {

// Published configs stay below 1 MB (those with a label for every class are the largest).
constexpr std::int64_t kMaxConfigBytes = 16 << 20;

// An open file descriptor, closed at the end of its life.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

tl::unexpected<Error> system_error(std::string_view path, int number) {
  return fail(number == ENOENT || number == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo,
              fmt::format("{}: {}", path, std::strerror(number)));
}

const char* kind_of(const struct stat& status) {
  if (S_ISDIR(status.st_mode)) return "a folder";
  if (S_ISFIFO(status.st_mode)) return "a pipe";
  if (S_ISSOCK(status.st_mode)) return "a socket";
  return "a device";
}

// The whole of a regular file of at most `max_bytes`.
Result<std::string> read_text(const std::string& path, std::int64_t max_bytes) {
  // Without O_NONBLOCK the opening of a pipe would wait for its writer.
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return system_error(path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return system_error(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kIo,
                fmt::format("{}: found {}, expected a regular file", path, kind_of(status)));
  }
  if (status.st_size > max_bytes) {
    return fail(ErrorCode::kCorruptData, fmt::format("{}: found {} bytes, expected at most {}",
                                                     path, status.st_size, max_bytes));
  }
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + filled, text.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(path, errno);
    if (count == 0) break;  // the file shrank meanwhile
    filled += static_cast<std::size_t>(count);
  }
  text.resize(filled);
  return text;
}

Result<ModelSpec> read_config(std::string_view text, std::string_view where, std::string name) {
  KVARTO_TRY(const Value root, parse_json(text, where));
  if (!std::holds_alternative<ValueMap>(root.data)) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: found {}, expected a map of keys", where, describe(root)));
  }
  KVARTO_TRY(ModelSpec spec, read_model_keys(Keys(root, std::string(where))));
  spec.name = std::move(name);
  return spec;
}

// A folder is known by its own name: `models/llama-2-7b/` and `models/llama-2-7b/config.json` are
// both `llama-2-7b`. Other files are known by theirs.
std::string name_of(const std::filesystem::path& path) {
  const std::filesystem::path full = std::filesystem::path(path).lexically_normal();
  if (full.filename() != "config.json") return full.stem().string();
  std::string folder = full.parent_path().filename().string();
  if (folder.empty() || folder == "." || folder == "..") {
    std::error_code problem;
    const auto absolute = std::filesystem::absolute(full, problem).lexically_normal();
    if (!problem) folder = absolute.parent_path().filename().string();
  }
  return folder.empty() ? "config" : folder;
}

Result<ModelSpec> open_config(const std::string& path) {
  KVARTO_TRY(const std::string text, read_text(path, kMaxConfigBytes));
  return read_config(text, path, name_of(path));
}

bool has_gguf_magic(const std::string& path) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char magic[4] = {};
  return file.get() >= 0 && ::pread(file.get(), magic, sizeof magic, 0) == sizeof magic &&
         std::memcmp(magic, "GGUF", sizeof magic) == 0;
}

// Whether a text that names nothing in the file system was surely meant as a path.
bool is_like_path(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".json") ||
         text.ends_with(".gguf") || text.ends_with(".safetensors");
}

Result<ModelSpec> open_folder(const std::string& path) {
  const std::string config = (std::filesystem::path(path) / "config.json").string();
  auto spec = open_config(config);
  if (!spec.has_value() && spec.error().code == ErrorCode::kNotFound) {
    return fail(ErrorCode::kNotFound, fmt::format("{}: the folder holds no config.json", path));
  }
  if (!spec.has_value()) return spec;
  return with_folder_weights(std::move(spec).value(), path);
}

}  // namespace

Result<ModelSpec> read_config_json(std::string_view text, std::string_view name) {
  return read_config(text, name, std::string(name));
}

Result<ModelSpec> open_model(std::string_view path) {
  const std::string text(path);
  if (text.empty() || text.find('\0') != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument, "the model's path is empty, expected a file or name");
  }
  struct stat status {};
  if (::stat(text.c_str(), &status) != 0) {
    if ((errno != ENOENT && errno != ENOTDIR) || is_like_path(path)) {
      return system_error(path, errno);
    }
    auto model = catalogue_model(path);
    if (model.has_value() || model.error().code != ErrorCode::kNotFound) return model;
    return fail(ErrorCode::kNotFound,
                fmt::format("{}: no such file or folder; {}", path, model.error().message));
  }
  if (S_ISDIR(status.st_mode)) return open_folder(text);
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kIo,
                fmt::format("{}: found {}, expected a file or folder", path, kind_of(status)));
  }
  if (path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json")) {
    return open_safetensors_model(text);
  }
  if (path.ends_with(".gguf") || has_gguf_magic(text)) {
    return open_gguf_model(text);
  }
  return open_config(text);
}

}  // namespace kvarto
