// Looks up the tensors of one decoder and keeps account of those that were used.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

#include "runtime/decoder.h"
#include "runtime/model_source.h"

namespace kvarto {

enum class Need : std::uint8_t {
  kRequired,
  kOptional,  // an absent tensor leaves what it would fill empty
  kNone,      // not looked for
};

// Not thread-safe; one owner. All errors are kCorruptData or kUnsupported and name file and tensor.
class TensorReader {
 public:
  explicit TensorReader(const ModelSource& source);

  // Finds where the names of the text model begin: "model.", "language_model.model.", ...
  Status find_prefix();
  // Names below are relative to the prefix, save those of read_head.
  [[nodiscard]] std::string full_name(std::string_view name) const {
    return prefix_ + std::string(name);
  }

  // [rows, columns]; 0 rows or columns = whatever the tensor has.
  struct Shape {
    std::uint64_t rows = 0;
    std::uint64_t columns = 0;
  };
  Status read_matrix(const std::string& name, Shape shape, Matrix& matrix);
  // `count` elements, each increased by `offset`.
  struct VectorShape {
    std::uint64_t count = 0;
    float offset = 0;
    Need need = Need::kRequired;
  };
  Status read_vector(const std::string& name, const VectorShape& shape, Vector& vector);

  // Names a tensor that is known and not used, so that it is no mistake.
  void pass_over(std::string_view name) { used_.emplace(name); }
  // Fails if a tensor of the text model was neither used nor passed over.
  [[nodiscard]] Status check_all_used() const;

  [[nodiscard]] std::uint64_t bytes_used() const { return bytes_used_; }
  [[nodiscard]] bool has(std::string_view name) const {
    return source_.find(full_name(name)) != nullptr;
  }
  // For the head, which lies beside the prefix.
  [[nodiscard]] std::string head_name() const;

 private:
  Result<const Tensor*> find(const std::string& full, Need need);

  const ModelSource& source_;
  std::string prefix_;
  std::unordered_set<std::string> used_;
  std::uint64_t bytes_used_ = 0;
};

}  // namespace kvarto
