// A model's files, open: the keys of its configuration, and its tensors by name.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "kvarto/model_spec.h"
#include "kvarto/tensor_file.h"
#include "spec/keys.h"

namespace kvarto {

enum class FileFormat : std::uint8_t {
  kGguf,
  kHuggingFace,  // a config.json and safetensors
};

// Immutable. Movable: tensors and bytes stay where they are.
class ModelSource {
 public:
  // Errors: as Checkpoint::open(), of the files alone.
  [[nodiscard]] static Result<ModelSource> open(std::string_view path);

  [[nodiscard]] FileFormat format() const { return format_; }
  // `general.architecture` of a GGUF, `model_type` of a configuration.
  [[nodiscard]] const std::string& architecture() const { return architecture_; }
  // The keys of the text model: those under "ARCHITECTURE.", or those of `text_config`.
  [[nodiscard]] Keys keys() const;
  // The keys around them; equal to keys() where nothing is nested.
  [[nodiscard]] Keys root_keys() const;
  [[nodiscard]] const ModelSpec& spec() const { return spec_; }
  [[nodiscard]] const TensorFile& tensors() const { return *tensors_; }

  [[nodiscard]] const Tensor* find(std::string_view name) const;
  [[nodiscard]] const std::string& file_of(const Tensor& tensor) const {
    return tensors_->files[tensor.file];
  }
  [[nodiscard]] const std::byte* bytes_of(const Tensor& tensor) const {
    return mappings_[tensor.file].bytes().data() + tensor.offset;
  }

 private:
  ModelSource() = default;
  Status read_gguf(const std::string& path);
  Status read_folder(const std::string& weights, const std::string& config);
  Status map_tensors(const std::string& path);

  FileFormat format_ = FileFormat::kGguf;
  std::string architecture_;
  std::string where_;
  std::unique_ptr<Value> values_;
  std::unique_ptr<TensorFile> tensors_;
  std::vector<MappedFile> mappings_;
  std::unordered_map<std::string_view, const Tensor*> by_name_;
  ModelSpec spec_;
};

}  // namespace kvarto
