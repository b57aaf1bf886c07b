#include "formats/safetensors_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "formats/safetensors.h"
#include "formats/tensor_geometry.h"
#include "kvarto/model_file.h"
#include "kvarto/tensor_file.h"

namespace kvarto {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors";
constexpr std::string_view kIndexExtension = ".safetensors.index.json";

bool is_file(const fs::path& path) {
  std::error_code problem;
  return fs::is_regular_file(path, problem);
}

// "model" of "model-00002-of-00005.safetensors", nullopt for other names and for "-of-00001".
std::optional<std::string> shard_stem(const fs::path& path) {
  constexpr std::string_view kPart = "-00001-of-00001";
  const std::string stem = path.stem().string();
  if (stem.size() <= kPart.size()) return std::nullopt;
  const std::string part = stem.substr(stem.size() - kPart.size());
  if (part[0] != '-' || part.compare(6, 4, "-of-") != 0) return std::nullopt;
  for (const std::size_t start : {1u, 10u}) {
    if (part.substr(start, 5).find_first_not_of("0123456789") != std::string::npos) {
      return std::nullopt;
    }
  }
  if (part.substr(10) == "00001") return std::nullopt;
  return stem.substr(0, stem.size() - kPart.size());
}

// Quantised types other than these pack or flatten a matrix, so that its rows are not its outputs.
bool is_plain_type(TensorType type) {
  switch (type) {
    case TensorType::kF64:
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
    case TensorType::kF8E4M3:
    case TensorType::kF8E5M2:
    case TensorType::kF8E4M3Fnuz:
    case TensorType::kF8E5M2Fnuz:
      return true;
    default:
      return false;
  }
}

Result<ModelSpec> with_weights(ModelSpec spec, const TensorFile& file) {
  const LayerLookup layers(spec);
  for (const Tensor& tensor : file.tensors) {
    if (tensor.shape.size() != 2 || !is_plain_type(tensor.type)) continue;
    const TensorShape shape{
        .name = tensor.name, .rows = tensor.shape[0], .columns = tensor.shape[1], .num_dims = 2};
    KVARTO_CHECK_OK(check_tensor(shape, layers, file.files[tensor.file]));
  }
  spec.weight_bytes = file.total_bytes();
  return spec;
}

// The tensors of the model that `path` belongs to: of all shards if it is one of several and their
// index lies beside it. `is_whole` = all of them are there.
Result<TensorFile> read_all_tensors(const std::string& path, bool& is_whole) {
  is_whole = true;
  const auto stem = path.ends_with(kExtension) ? shard_stem(path) : std::nullopt;
  if (!stem) return read_tensor_file(path);
  const fs::path index = fs::path(path).parent_path() / (*stem + std::string(kIndexExtension));
  if (is_file(index)) return read_safetensors_index(index.string());
  is_whole = false;
  return read_tensor_file(path);
}

}  // namespace

Result<ModelSpec> open_safetensors_model(const std::string& path) {
  bool is_whole = true;
  // The file named comes first: what is wrong with it matters before what lies beside it.
  KVARTO_TRY(const TensorFile file, read_all_tensors(path, is_whole));
  const std::string config = (fs::path(path).parent_path() / "config.json").string();
  if (!is_file(config)) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{}: missing, expected beside {}, whose header names tensors but does "
                            "not describe the model",
                            config, path));
  }
  KVARTO_TRY(ModelSpec spec, open_model(config));
  KVARTO_TRY(spec, with_weights(std::move(spec), file));
  if (!is_whole) {
    spec.weight_bytes = 0;
    spec.notes.push_back(fmt::format(
        "weights: {} is one shard of several and their index is missing, so that their bytes are "
        "unknown",
        path));
  }
  return spec;
}

Result<ModelSpec> with_folder_weights(ModelSpec spec, const std::string& folder) {
  for (const std::string_view extension : {kIndexExtension, kExtension}) {
    const fs::path path = fs::path(folder) / ("model" + std::string(extension));
    if (!is_file(path)) continue;
    auto file = read_tensor_file(path.string());
    if (!file && file.error().code == ErrorCode::kNotFound) {
      spec.notes.push_back(
          fmt::format("weights: {}; their bytes are unknown", file.error().message));
      return spec;
    }
    if (!file) return tl::unexpected<Error>(std::move(file).error());
    return with_weights(std::move(spec), *file);
  }
  return spec;
}

}  // namespace kvarto
