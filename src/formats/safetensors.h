// The safetensors container: its header, checked against the format's rules and the file's size;
// and the index of a model that is split over several such files.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/result.h"
#include "kvarto/tensor_file.h"

namespace kvarto {

struct SafetensorsTensor {
  std::string_view name;
  TensorType type{};
  std::size_t first_dim = 0;  // its dimensions in SafetensorsHeader::dims
  std::size_t num_dims = 0;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
};

// The header of one file; valid while the bytes that it was read from are.
struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in header order, names unique, filling the file
  std::vector<std::uint64_t> dims;         // of all tensors
  std::deque<std::string> decoded_names;   // those that were written with escapes

  [[nodiscard]] std::span<const std::uint64_t> shape(const SafetensorsTensor& tensor) const {
    return std::span(dims).subspan(tensor.first_dim, tensor.num_dims);
  }
};

// Reads and checks one file's header. `name` is used in messages. Errors: kCorruptData.
// Allocates at most 16 times the bytes of the header.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file,
                                                          std::string_view name);

// The tensors of one `.safetensors`, or of all shards that a `.safetensors.index.json` names.
[[nodiscard]] Result<TensorFile> read_safetensors_file(const std::string& path);
[[nodiscard]] Result<TensorFile> read_safetensors_index(const std::string& path);

}  // namespace kvarto
