// The GGUF container, versions 2 and 3: metadata and tensor records, checked against the file.
//
// Nothing is copied: keys, strings and arrays are views into the file's bytes, so that a
// vocabulary of 100,000 tokens costs one pass over it. What the keys mean is gguf_model.h's part.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "kvarto/result.h"
#include "kvarto/tensor_file.h"

namespace kvarto {

// Types of metadata values, with their numbers in the file.
enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// One metadata value as a view. A scalar is an array of one.
struct GgufValue {
  GgufType type{};  // of the element where is_array
  bool is_array = false;
  std::uint64_t count = 1;
  std::span<const std::byte> bytes;  // the elements as stored; strings with their lengths
};

struct GgufKey {
  std::string_view name;
  GgufValue value;
};

struct GgufTensor {
  std::string_view name;
  TensorType type{};
  std::uint32_t num_dims = 0;
  std::array<std::uint64_t, 4> dims{1, 1, 1, 1};  // as stored: the contiguous one first
  std::uint64_t offset = 0;                       // from the start of the file
  std::uint64_t bytes = 0;
};

// The header of one file; valid while the bytes that it was read from are.
struct GgufHeader {
  std::uint32_t version = 0;
  std::vector<GgufKey> keys;        // in file order, names unique
  std::vector<GgufTensor> tensors;  // in file order, names unique, inside the file, apart

  [[nodiscard]] const GgufValue* find(std::string_view key) const;
};

// Reads and checks one file's header. `name` is used in messages.
// Errors: kCorruptData; kUnsupported for version 1, big-endian files and removed tensor types.
// Allocates at most 8 times the bytes of the header.
[[nodiscard]] Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view name);

// A scalar number or bool as an unsigned integer; nullopt if it is none or negative.
[[nodiscard]] std::optional<std::uint64_t> gguf_unsigned(const GgufValue& value);
// A scalar string; nullopt if it is none.
[[nodiscard]] std::optional<std::string_view> gguf_string(const GgufValue& value);
// An array of strings as views; nullopt if it is none.
[[nodiscard]] std::optional<std::vector<std::string_view>> gguf_strings(const GgufValue& value);

// A model of one or several files, open. parts[0] holds the metadata.
struct GgufPart {
  std::string path;
  MappedFile file;
  GgufHeader header;
};
struct GgufFile {
  std::vector<GgufPart> parts;
};

// Opens a file, and if it is part of a split model (`NAME-00001-of-00003.gguf`), all its parts.
// Errors: as parse_gguf() and MappedFile::open(); kNotFound names a missing part.
[[nodiscard]] Result<GgufFile> open_gguf(const std::string& path);

// The tensors of all parts, copied.
[[nodiscard]] TensorFile gguf_tensor_file(const GgufFile& file);

}  // namespace kvarto
