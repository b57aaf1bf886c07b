// The tensors of a model file: names, types, shapes, and where their bytes lie.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/result.h"

namespace kvarto {

// Element formats of stored tensors: those of safetensors and of GGUF.
enum class TensorType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kC64,
  kF8E4M3,
  kF8E5M2,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF8E8M0,
  kF6E2M3,
  kF6E3M2,
  kF4,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ8_1,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kQ8K,
  kIq1S,
  kIq1M,
  kIq2Xxs,
  kIq2Xs,
  kIq2S,
  kIq3Xxs,
  kIq3S,
  kIq4Nl,
  kIq4Xs,
  kTq1_0,
  kTq2_0,
  kMxfp4,
  kNvfp4,
  kQ1_0,
  kQ2_0,
  // Of ik_llama.cpp alone.
  kQ6_0,
  kIq1Bn,
  kIq2Bn,
  kIq2K,
  kIq3K,
  kIq4K,
  kIq5K,
  kIq6K,
  kIq4Ks,
  kIq2Ks,
  kIq4Kss,
  kQ8Kv,
  kIq5Ks,
  kIq2Kt,
  kIq3Kt,
  kIq4Kt,
  kIq3Ks,
  kIq2Kl,
  kIq1Kt,
};

// How elements of one type lie in memory: `block_elements` of a row together take `block_bytes`.
struct TensorTypeLayout {
  TensorType type{};
  std::string_view name;  // as the format's own tools print it: "F32", "Q4_K", "F8_E4M3"
  std::uint32_t block_elements = 1;
  std::uint32_t block_bytes = 0;
  std::uint32_t row_extra_bytes = 0;  // of every row beside its blocks (a scale)
};
[[nodiscard]] const TensorTypeLayout& tensor_type_layout(TensorType type);

struct Tensor {
  std::string name;
  TensorType type{};
  // Outermost dimension first, the last one contiguous; a weight of a linear layer is
  // [outputs, inputs] in every format. Empty = a scalar.
  std::vector<std::uint64_t> shape;
  std::uint32_t file = 0;    // index in TensorFile::files
  std::uint64_t offset = 0;  // of its first byte, from the start of that file
  std::uint64_t bytes = 0;
};

// The tensors of a model in one or several files, in file order. Immutable plain data.
// Invariant: every tensor lies inside its file, and no two overlap.
struct TensorFile {
  std::vector<std::string> files;
  std::vector<Tensor> tensors;

  // Null if there is no tensor of that name. O(number of tensors).
  [[nodiscard]] const Tensor* find(std::string_view name) const;
  [[nodiscard]] std::uint64_t total_bytes() const;
};

// Reads the headers of a `.gguf` (any part of a split file), a `.safetensors`, or an index of
// shards (`*.safetensors.index.json`). Errors: kNotFound (also for a missing part or shard, which
// is named), kIo, kCorruptData, kUnsupported.
// Allocates at most 64 times the bytes of the headers and of the index.
[[nodiscard]] Result<TensorFile> read_tensor_file(std::string_view path);

}  // namespace kvarto
