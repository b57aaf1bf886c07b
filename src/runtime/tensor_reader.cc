#include "runtime/tensor_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <optional>

#include "kernels/forward_dispatch.h"

namespace kvarto {
namespace {

constexpr std::string_view kEmbedding = "embed_tokens.weight";
// Of text models, and of text models inside others.
constexpr std::array<std::string_view, 5> kPrefixes = {
    "model.", "language_model.model.", "model.language_model.", "language_model.", ""};
constexpr std::uint64_t kMaxColumns = 1u
                                      << 20;  // far beyond any model; sums of products rely on it

std::optional<WeightType> weight_type(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return WeightType::kF32;
    case TensorType::kF16:
      return WeightType::kF16;
    case TensorType::kBF16:
      return WeightType::kBF16;
    case TensorType::kQ8_0:
      return WeightType::kQ8_0;
    case TensorType::kQ5_0:
      return WeightType::kQ5_0;
    case TensorType::kQ4_0:
      return WeightType::kQ4_0;
    case TensorType::kQ4K:
      return WeightType::kQ4K;
    case TensorType::kQ5K:
      return WeightType::kQ5K;
    case TensorType::kQ6K:
      return WeightType::kQ6K;
    default:
      return std::nullopt;
  }
}

tl::unexpected<Error> wrong(const ModelSource& source, const Tensor& tensor,
                            const std::string& expected) {
  return fail(
      ErrorCode::kCorruptData,
      fmt::format("{}: tensor \"{}\": found shape [{}], expected {}", source.file_of(tensor),
                  tensor.name, fmt::join(tensor.shape, ", "), expected));
}

tl::unexpected<Error> wrong_type(const ModelSource& source, const Tensor& tensor,
                                 std::string_view expected) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: tensor \"{}\": found type {}, expected {}", source.file_of(tensor),
                          tensor.name, tensor_type_layout(tensor.type).name, expected));
}

std::string dim_text(std::uint64_t dim) { return dim == 0 ? "any" : fmt::format("{}", dim); }

// Tensors that training or converters leave behind and that no forward pass reads.
bool is_left_over(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".rot_embd") ||
         name == "rope_freqs.weight";
}

}  // namespace

TensorReader::TensorReader(const ModelSource& source) : source_(source) {}

Status TensorReader::find_prefix() {
  if (source_.format() == FileFormat::kGguf) return {};
  for (const std::string_view prefix : kPrefixes) {
    if (source_.find(std::string(prefix) + std::string(kEmbedding)) == nullptr) continue;
    prefix_ = prefix;
    return {};
  }
  return fail(ErrorCode::kCorruptData, fmt::format("{}: tensor \"model.{}\": missing",
                                                   source_.tensors().files.front(), kEmbedding));
}

std::string TensorReader::head_name() const {
  if (source_.format() == FileFormat::kGguf) return "output.weight";
  const bool is_nested = prefix_ == "language_model.model.";
  return is_nested ? "language_model.lm_head.weight" : "lm_head.weight";
}

Result<const Tensor*> TensorReader::find(const std::string& full, Need need) {
  const Tensor* tensor = need == Need::kNone ? nullptr : source_.find(full);
  if (tensor == nullptr) {
    if (need != Need::kRequired) return nullptr;
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: tensor \"{}\": missing", source_.tensors().files.front(), full));
  }
  if (used_.insert(full).second) bytes_used_ += tensor->bytes;
  return tensor;
}

Status TensorReader::read_matrix(const std::string& name, Shape shape, Matrix& matrix) {
  KVARTO_TRY(const Tensor* tensor, find(name, Need::kRequired));
  const auto type = weight_type(tensor->type);
  if (!type) {
    return wrong_type(source_, *tensor, "F32, F16, BF16, Q8_0, Q5_0, Q4_0, Q4_K, Q5_K or Q6_K");
  }
  const auto fits = [](std::uint64_t found, std::uint64_t expected) {
    return found > 0 && found <= UINT32_MAX && (expected == 0 || found == expected);
  };
  if (tensor->shape.size() != 2 || !fits(tensor->shape[0], shape.rows) ||
      !fits(tensor->shape[1], shape.columns) || tensor->shape[1] > kMaxColumns) {
    return wrong(source_, *tensor,
                 fmt::format("[{}, {}]", dim_text(shape.rows), dim_text(shape.columns)));
  }
  matrix.type = *type;
  matrix.bytes = source_.bytes_of(*tensor);
  matrix.rows = static_cast<std::uint32_t>(tensor->shape[0]);
  matrix.columns = static_cast<std::uint32_t>(tensor->shape[1]);
  if (matrix.columns % weight_block(*type) != 0) {
    return wrong(source_, *tensor, fmt::format("rows of whole blocks of {}", weight_block(*type)));
  }
  matrix.row_bytes = tensor->bytes / matrix.rows;
  return {};
}

Status TensorReader::read_vector(const std::string& name, const VectorShape& shape,
                                 Vector& vector) {
  KVARTO_TRY(const Tensor* tensor, find(name, shape.need));
  if (tensor == nullptr) return {};
  const auto type = weight_type(tensor->type);
  if (!type || weight_block(*type) != 1) return wrong_type(source_, *tensor, "F32, F16 or BF16");
  if (tensor->shape != std::vector<std::uint64_t>{shape.count}) {
    return wrong(source_, *tensor, fmt::format("[{}]", shape.count));
  }
  vector.resize(shape.count);
  KVARTO_TRY(const ForwardKernels* kernels, active_forward_kernels());
  kernels->widen[static_cast<int>(*type)](source_.bytes_of(*tensor), vector.data(), vector.size());
  for (float& element : vector) element += shape.offset;
  return {};
}

Status TensorReader::check_all_used() const {
  for (const Tensor& tensor : source_.tensors().tensors) {
    if (!tensor.name.starts_with(prefix_) || is_left_over(tensor.name)) continue;
    if (used_.contains(tensor.name)) continue;
    // Beside the text model lie those of images.
    if (prefix_.empty() && source_.format() == FileFormat::kHuggingFace) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: tensor \"{}\": the forward pass of this family does not use it",
                            source_.file_of(tensor), tensor.name));
  }
  return {};
}

}  // namespace kvarto
