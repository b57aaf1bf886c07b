#include "kvarto/tensor_file.h"

#include <algorithm>

#include "formats/gguf.h"
#include "formats/safetensors.h"

namespace kvarto {

const Tensor* TensorFile::find(std::string_view name) const {
  const auto tensor =
      std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  return tensor == tensors.end() ? nullptr : &*tensor;
}

std::uint64_t TensorFile::total_bytes() const {
  std::uint64_t total = 0;
  for (const Tensor& tensor : tensors) total += tensor.bytes;
  return total;
}

Result<TensorFile> read_tensor_file(std::string_view path) {
  const std::string text(path);
  if (path.ends_with(".safetensors")) return read_safetensors_file(text);
  if (path.ends_with(".safetensors.index.json")) return read_safetensors_index(text);
  KVARTO_TRY(const GgufFile file, open_gguf(text));
  return gguf_tensor_file(file);
}

}  // namespace kvarto
