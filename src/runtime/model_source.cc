#include "runtime/model_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "formats/gguf.h"
#include "formats/gguf_keys.h"
#include "formats/json_value.h"
#include "kvarto/model_file.h"

namespace kvarto {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors";
constexpr std::string_view kIndexExtension = ".safetensors.index.json";
constexpr std::string_view kNested = "text_config";

bool is_file(const fs::path& path) {
  std::error_code problem;
  return fs::is_regular_file(path, problem);
}

bool has_gguf_magic(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  return file.read(magic, sizeof magic) && std::string_view(magic, sizeof magic) == "GGUF";
}

// The weights of a folder: the index of its shards, or its only file.
Result<std::string> folder_weights(const fs::path& folder) {
  for (const std::string_view extension : {kIndexExtension, kExtension}) {
    const fs::path path = folder / ("model" + std::string(extension));
    if (is_file(path)) return path.string();
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("{}: the folder holds neither model.safetensors nor "
                          "model.safetensors.index.json",
                          folder.string()));
}

// A shard stands for the model where the index of all shards lies beside it.
std::string whole_model(const std::string& path) {
  const std::size_t part = path.rfind("-of-");
  constexpr std::size_t kDigits = 6;  // "-00001" before, "00002.safetensors" behind
  if (part == std::string::npos || part < kDigits) return path;
  const std::string index = path.substr(0, part - kDigits) + std::string(kIndexExtension);
  return is_file(index) ? index : path;
}

}  // namespace

Keys ModelSource::keys() const {
  const Keys root = root_keys();
  if (format_ == FileFormat::kGguf) return root;
  return root.child(kNested).value_or(root);
}

Keys ModelSource::root_keys() const {
  return {*values_, where_, format_ == FileFormat::kGguf ? architecture_ + "." : ""};
}

const Tensor* ModelSource::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Status ModelSource::map_tensors(const std::string& path) {
  KVARTO_TRY(TensorFile file, read_tensor_file(path));
  tensors_ = std::make_unique<TensorFile>(std::move(file));
  for (const std::string& name : tensors_->files) {
    KVARTO_TRY(MappedFile mapping, MappedFile::open(name));
    mappings_.push_back(std::move(mapping));
  }
  for (const Tensor& tensor : tensors_->tensors) {
    // The headers were read through another mapping; the file may have changed since.
    const std::uint64_t size = mappings_[tensor.file].bytes().size();
    if (tensor.offset > size || tensor.bytes > size - tensor.offset) {
      return fail(ErrorCode::kCorruptData,
                  fmt::format("{}: tensor \"{}\": found a file of {} bytes, expected {} bytes from "
                              "offset {}",
                              file_of(tensor), tensor.name, size, tensor.bytes, tensor.offset));
    }
    by_name_.emplace(tensor.name, &tensor);
  }
  return {};
}

Status ModelSource::read_gguf(const std::string& path) {
  format_ = FileFormat::kGguf;
  where_ = path;
  KVARTO_TRY(const GgufFile file, open_gguf(path));
  KVARTO_TRY(GgufModelKeys keys, read_gguf_keys(file.parts.front().header, path));
  architecture_ = std::move(keys.architecture);
  values_ = std::make_unique<Value>(std::move(keys.values));
  return map_tensors(path);
}

Status ModelSource::read_folder(const std::string& weights, const std::string& config) {
  format_ = FileFormat::kHuggingFace;
  where_ = config;
  KVARTO_TRY(const MappedFile file, MappedFile::open(config));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  KVARTO_TRY(Value root, parse_json(text, config));
  values_ = std::make_unique<Value>(std::move(root));
  for (const Keys& place : {keys(), root_keys()}) {
    KVARTO_TRY(const auto type, place.string("model_type"));
    if (!architecture_.empty() || !type) continue;
    architecture_ = *type;
  }
  if (architecture_.empty()) return root_keys().missing("model_type", "the name of a model type");
  return map_tensors(weights);
}

Result<ModelSource> ModelSource::open(std::string_view path) {
  ModelSource source;
  KVARTO_TRY(source.spec_, open_model(path));
  const std::string text(path);
  std::error_code problem;
  if (fs::is_directory(text, problem)) {
    KVARTO_TRY(const std::string weights, folder_weights(text));
    KVARTO_CHECK_OK(source.read_folder(weights, (fs::path(text) / "config.json").string()));
    return source;
  }
  if (!is_file(text)) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{}: a name of the catalogue has no weights, expected a model file or "
                            "the folder of one",
                            text));
  }
  const fs::path folder = fs::path(text).parent_path();
  if (text.ends_with(kExtension) || text.ends_with(kIndexExtension)) {
    KVARTO_CHECK_OK(source.read_folder(whole_model(text), (folder / "config.json").string()));
  } else if (text.ends_with(".gguf") || has_gguf_magic(text)) {
    KVARTO_CHECK_OK(source.read_gguf(text));
  } else {
    KVARTO_TRY(const std::string weights, folder_weights(folder));
    KVARTO_CHECK_OK(source.read_folder(weights, text));
  }
  return source;
}

}  // namespace kvarto
