#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/printable.h"
#include "formats/gguf_tensor_type.h"

namespace kvarto {
namespace {

// Sizes and limits of the GGUF specification (ggml docs/gguf.md).
constexpr std::uint32_t kNewestVersion = 3;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxKeyBytes = 65'535;
constexpr std::uint64_t kMaxTensorNameBytes = 64;
constexpr std::uint32_t kMaxDims = 4;
// Smallest records: a key is its length, type and a one-byte value; a tensor is its name's length,
// number of dimensions, type and offset.
constexpr std::uint64_t kMinKeyBytes = 8 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

// Bytes of a fixed-size value; 0 for strings and arrays; nullopt for an unknown type.
std::optional<std::uint64_t> value_bytes(std::uint32_t type) {
  constexpr std::array<std::uint8_t, 13> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  if (type >= kBytes.size()) return std::nullopt;
  return kBytes[type];
}

// Reads one header from front to back; every message names the file and the record.
class Parser {
 public:
  Parser(std::span<const std::byte> file, std::string_view name)
      : file_(file), reader_(file), name_(name) {}

  Result<GgufHeader> run() {
    KVARTO_CHECK_OK(read_start());
    for (std::uint64_t i = 0; i < num_keys_; ++i) KVARTO_CHECK_OK(read_key(i));
    KVARTO_CHECK_OK(check_unique_keys());
    KVARTO_CHECK_OK(read_alignment());
    KVARTO_CHECK_OK(check_count("tensor_count", num_tensors_, kMinTensorBytes));
    header_.tensors.reserve(static_cast<std::size_t>(num_tensors_));
    for (std::uint64_t i = 0; i < num_tensors_; ++i) KVARTO_CHECK_OK(read_tensor(i));
    KVARTO_CHECK_OK(check_unique_tensors());
    KVARTO_CHECK_OK(place_tensors());
    return std::move(header_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> bad(std::string_view field, std::string_view found,
                                          std::string_view expected,
                                          ErrorCode code = ErrorCode::kCorruptData) const {
    return fail(code, fmt::format("{}: {}: found {}, expected {}", name_, field, found, expected));
  }

  // An error for a field that the file's end cuts off.
  [[nodiscard]] tl::unexpected<Error> ends(std::string_view field, std::uint64_t needed) const {
    return bad(field, fmt::format("the end of the file after {} bytes", reader_.remaining()),
               fmt::format("{} bytes at offset {}", needed, reader_.position()));
  }

  Status check_count(std::string_view field, std::uint64_t count, std::uint64_t min_bytes) const {
    if (count <= reader_.remaining() / min_bytes) return {};
    return bad(field, fmt::format("{}", count),
               fmt::format("at most {}, as the {} bytes left can hold",
                           reader_.remaining() / min_bytes, reader_.remaining()));
  }

  Status read_start() {
    const auto magic = reader_.read_bytes(4);
    if (!magic) return ends("magic", 4);
    if (*magic != "GGUF") {
      return bad("magic", fmt::format("\"{}\"", printable(*magic)), "\"GGUF\"");
    }
    const auto version = reader_.read<std::uint32_t>();
    if (!version) return ends("version", 4);
    if (*version == 1) {
      return bad("version", "1", "2 or 3 (version 1 was replaced in 2023; convert the model again)",
                 ErrorCode::kUnsupported);
    }
    if (*version != 0 && (*version & 0xffff) == 0) {
      return bad("byte order", "big-endian", "little-endian", ErrorCode::kUnsupported);
    }
    if (*version == 0 || *version > kNewestVersion) {
      return bad("version", fmt::format("{}", *version), "2 or 3", ErrorCode::kUnsupported);
    }
    header_.version = *version;
    const auto num_tensors = reader_.read<std::uint64_t>();
    if (!num_tensors) return ends("tensor_count", 8);
    const auto num_keys = reader_.read<std::uint64_t>();
    if (!num_keys) return ends("metadata_kv_count", 8);
    num_tensors_ = *num_tensors;
    num_keys_ = *num_keys;
    KVARTO_CHECK_OK(check_count("metadata_kv_count", num_keys_, kMinKeyBytes));
    KVARTO_CHECK_OK(check_count("tensor_count", num_tensors_, kMinTensorBytes));
    header_.keys.reserve(static_cast<std::size_t>(num_keys_));
    return {};
  }

  Result<std::string_view> read_string(std::string_view field, std::uint64_t max_bytes) {
    const auto length = reader_.read<std::uint64_t>();
    if (!length) return ends(fmt::format("{} (length)", field), 8);
    if (*length > max_bytes) {
      return bad(fmt::format("{} (length)", field), fmt::format("{}", *length),
                 fmt::format("at most {}", max_bytes));
    }
    const auto text = reader_.read_bytes(*length);
    if (!text) return ends(field, *length);
    return *text;
  }

  Status read_key(std::uint64_t index) {
    KVARTO_TRY(const std::string_view key,
               read_string(fmt::format("key {}", index), kMaxKeyBytes));
    if (key.empty()) return bad(fmt::format("key {}", index), "an empty name", "a name");
    const std::string field = printable(key);
    const auto type = reader_.read<std::uint32_t>();
    if (!type) return ends(fmt::format("{} (type)", field), 4);
    GgufKey record{.name = key, .value = {}};
    KVARTO_CHECK_OK(*type == static_cast<std::uint32_t>(GgufType::kArray)
                        ? read_array(field, record.value)
                        : read_elements(field, *type, record.value));
    header_.keys.push_back(record);
    return {};
  }

  Status read_array(const std::string& field, GgufValue& value) {
    value.is_array = true;
    const auto type = reader_.read<std::uint32_t>();
    if (!type) return ends(fmt::format("{} (element type)", field), 4);
    const auto count = reader_.read<std::uint64_t>();
    if (!count) return ends(fmt::format("{} (count)", field), 8);
    // The specification allows arrays of arrays; no known model has one and no loader reads them.
    if (*type == static_cast<std::uint32_t>(GgufType::kArray)) {
      return bad(field, "an array of arrays", "an array of numbers, bools or strings",
                 ErrorCode::kUnsupported);
    }
    value.count = *count;
    return read_elements(field, *type, value);
  }

  // Reads `value.count` elements of `type`.
  Status read_elements(const std::string& field, std::uint32_t type, GgufValue& value) {
    const auto element_bytes = value_bytes(type);
    if (!element_bytes) {
      return bad(fmt::format("{} (type)", field), fmt::format("{}", type), "0 to 12");
    }
    value.type = static_cast<GgufType>(type);
    const std::size_t start = reader_.position();
    if (value.type == GgufType::kString) {
      KVARTO_CHECK_OK(skip_strings(field, value.count));
    } else {
      const auto total = checked_mul(value.count, *element_bytes);
      if (!total || !reader_.read_bytes(*total)) {
        return bad(field, fmt::format("{} elements of {} bytes", value.count, *element_bytes),
                   fmt::format("at most the {} bytes left", reader_.remaining()));
      }
    }
    value.bytes = file_.subspan(start, reader_.position() - start);
    return value.type == GgufType::kBool ? check_bools(field, value) : Status();
  }

  Status skip_strings(const std::string& field, std::uint64_t count) {
    if (count > reader_.remaining() / 8) {
      return bad(field, fmt::format("{} strings", count),
                 fmt::format("at most {}, as the {} bytes left can hold", reader_.remaining() / 8,
                             reader_.remaining()));
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto length = reader_.read<std::uint64_t>();
      if (!length) return ends(fmt::format("{}[{}] (length)", field, i), 8);
      if (!reader_.read_bytes(*length)) return ends(fmt::format("{}[{}]", field, i), *length);
    }
    return {};
  }

  Status check_bools(const std::string& field, const GgufValue& value) const {
    for (const std::byte byte : value.bytes) {
      if (byte > std::byte{1}) {
        return bad(field, fmt::format("{}", std::to_integer<int>(byte)), "0 or 1 for a bool");
      }
    }
    return {};
  }

  // The first name that occurs twice, or nullopt.
  template <typename Record>
  static std::optional<std::string_view> repeated_name(const std::vector<Record>& records) {
    std::vector<std::string_view> names;
    names.reserve(records.size());
    for (const Record& record : records) names.push_back(record.name);
    std::sort(names.begin(), names.end());
    const auto twin = std::adjacent_find(names.begin(), names.end());
    return twin == names.end() ? std::nullopt : std::optional(*twin);
  }

  Status check_unique_keys() const {
    const auto twin = repeated_name(header_.keys);
    if (twin) return bad(printable(*twin), "the key twice", "once");
    return {};
  }

  Status check_unique_tensors() const {
    const auto twin = repeated_name(header_.tensors);
    if (twin) return bad(fmt::format("tensor \"{}\"", printable(*twin)), "it twice", "once");
    return {};
  }

  Status read_alignment() {
    constexpr std::string_view kKey = "general.alignment";
    const GgufValue* value = header_.find(kKey);
    if (value == nullptr) return {};
    const auto alignment = gguf_unsigned(*value);
    if (value->type != GgufType::kUint32 || !alignment) {
      return bad(kKey, "another type", "an unsigned 32-bit integer");
    }
    if (*alignment < 8 || !std::has_single_bit(*alignment)) {
      return bad(kKey, fmt::format("{}", *alignment), "a power of two of at least 8");
    }
    alignment_ = *alignment;
    return {};
  }

  Status read_tensor(std::uint64_t index) {
    KVARTO_TRY(const std::string_view name,
               read_string(fmt::format("tensor {} (name)", index), kMaxTensorNameBytes));
    if (name.empty()) return bad(fmt::format("tensor {}", index), "an empty name", "a name");
    const std::string field = fmt::format("tensor \"{}\"", printable(name));
    GgufTensor tensor{.name = name};
    KVARTO_CHECK_OK(read_dims(field, tensor));
    const auto type = reader_.read<std::uint32_t>();
    if (!type) return ends(fmt::format("{} (type)", field), 4);
    KVARTO_CHECK_OK(set_type(field, *type, tensor));
    const auto offset = reader_.read<std::uint64_t>();
    if (!offset) return ends(fmt::format("{} (offset)", field), 8);
    tensor.offset = *offset;
    header_.tensors.push_back(tensor);
    return {};
  }

  Status read_dims(const std::string& field, GgufTensor& tensor) {
    const auto num_dims = reader_.read<std::uint32_t>();
    if (!num_dims) return ends(fmt::format("{} (dimensions)", field), 4);
    if (*num_dims > kMaxDims) {
      return bad(field, fmt::format("{} dimensions", *num_dims), fmt::format("at most {}", kMaxDims));
    }
    tensor.num_dims = *num_dims;
    for (std::uint32_t d = 0; d < *num_dims; ++d) {
      const auto dim = reader_.read<std::uint64_t>();
      if (!dim) return ends(fmt::format("{} (dimension {})", field, d), 8);
      if (*dim == 0) return bad(fmt::format("{} (dimension {})", field, d), "0", "at least 1");
      tensor.dims[d] = *dim;
    }
    return {};
  }

  Status set_type(const std::string& field, std::uint32_t id, GgufTensor& tensor) const {
    const auto type = gguf_tensor_type(id);
    if (!type) {
      const auto removed = gguf_removed_type(id);
      return bad(fmt::format("{} (type)", field),
                 removed ? fmt::format("{} ({}, removed from the format)", id, *removed)
                         : fmt::format("{}", id),
                 "a tensor type of ggml",
                 removed ? ErrorCode::kUnsupported : ErrorCode::kCorruptData);
    }
    tensor.type = *type;
    const TensorTypeLayout& layout = tensor_type_layout(*type);
    if (tensor.dims[0] % layout.block_elements != 0) {
      return bad(field, fmt::format("rows of {} elements", tensor.dims[0]),
                 fmt::format("a multiple of {} for type {}", layout.block_elements, layout.name));
    }
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : tensor.dims) {
      const auto product = checked_mul(elements, dim);
      // The reference implementation counts elements in int64.
      if (!product || *product > std::uint64_t{INT64_MAX}) {
        return bad(field, fmt::format("{} elements", fmt::join(tensor.dims, " x ")),
                   "fewer than 2^63");
      }
      elements = *product;
    }
    const auto bytes = checked_mul(elements / layout.block_elements, layout.block_bytes);
    if (!bytes) return bad(field, fmt::format("{} elements", elements), "fewer than 2^64 bytes");
    tensor.bytes = *bytes;
    return {};
  }

  // Turns offsets within the data section into offsets within the file, and checks that each
  // tensor lies in the file and apart from the others. Holes between them are allowed.
  Status place_tensors() {
    if (header_.tensors.empty()) return {};
    const std::uint64_t data_start = round_up(reader_.position(), alignment_);
    if (data_start > file_.size()) {
      return bad("tensor data", fmt::format("the end of the file at {}", file_.size()),
                 fmt::format("the data section to start at {} (alignment {})", data_start,
                             alignment_));
    }
    const std::uint64_t available = file_.size() - data_start;
    for (GgufTensor& tensor : header_.tensors) {
      if (tensor.offset % alignment_ != 0) {
        return bad_tensor(tensor, fmt::format("offset {}", tensor.offset),
                          fmt::format("a multiple of the alignment {}", alignment_));
      }
      if (tensor.offset > available || tensor.bytes > available - tensor.offset) {
        return bad_tensor(tensor,
                          fmt::format("{} bytes at offset {}", tensor.bytes, tensor.offset),
                          fmt::format("them inside the {} bytes of tensor data", available));
      }
      tensor.offset += data_start;
    }
    return check_apart();
  }

  Status check_apart() const {
    std::vector<const GgufTensor*> order;
    order.reserve(header_.tensors.size());
    for (const GgufTensor& tensor : header_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return a->offset < b->offset;
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& before = *order[i - 1];
      if (before.offset + before.bytes > order[i]->offset) {
        return bad_tensor(*order[i], fmt::format("offset {}", order[i]->offset),
                          fmt::format("it behind tensor \"{}\", which ends at {}",
                                      printable(before.name), before.offset + before.bytes));
      }
    }
    return {};
  }

  [[nodiscard]] tl::unexpected<Error> bad_tensor(const GgufTensor& tensor, std::string_view found,
                                                 std::string_view expected) const {
    return bad(fmt::format("tensor \"{}\"", printable(tensor.name)), found, expected);
  }

  std::span<const std::byte> file_;
  ByteReader reader_;
  std::string_view name_;
  GgufHeader header_;
  std::uint64_t num_keys_ = 0;
  std::uint64_t num_tensors_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
};

template <typename Number>
std::optional<std::uint64_t> unsigned_from(std::span<const std::byte> bytes) {
  const auto number = ByteReader(bytes).read<Number>();
  if (!number || *number < Number{0}) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

}  // namespace

const GgufValue* GgufHeader::find(std::string_view key) const {
  const auto record =
      std::find_if(keys.begin(), keys.end(), [&](const GgufKey& k) { return k.name == key; });
  return record == keys.end() ? nullptr : &record->value;
}

Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view name) {
  return Parser(file, name).run();
}

std::optional<std::uint64_t> gguf_unsigned(const GgufValue& value) {
  if (value.is_array) return std::nullopt;
  switch (value.type) {
    case GgufType::kUint8:
    case GgufType::kBool: return unsigned_from<std::uint8_t>(value.bytes);
    case GgufType::kInt8: return unsigned_from<std::int8_t>(value.bytes);
    case GgufType::kUint16: return unsigned_from<std::uint16_t>(value.bytes);
    case GgufType::kInt16: return unsigned_from<std::int16_t>(value.bytes);
    case GgufType::kUint32: return unsigned_from<std::uint32_t>(value.bytes);
    case GgufType::kInt32: return unsigned_from<std::int32_t>(value.bytes);
    case GgufType::kUint64: return unsigned_from<std::uint64_t>(value.bytes);
    case GgufType::kInt64: return unsigned_from<std::int64_t>(value.bytes);
    default: return std::nullopt;
  }
}

std::optional<std::string_view> gguf_string(const GgufValue& value) {
  if (value.is_array || value.type != GgufType::kString) return std::nullopt;
  ByteReader reader(value.bytes);
  const auto length = reader.read<std::uint64_t>();
  return length ? reader.read_bytes(*length) : std::nullopt;
}

std::optional<std::vector<std::string_view>> gguf_strings(const GgufValue& value) {
  if (!value.is_array || value.type != GgufType::kString) return std::nullopt;
  std::vector<std::string_view> strings;
  strings.reserve(static_cast<std::size_t>(value.count));
  ByteReader reader(value.bytes);
  for (std::uint64_t i = 0; i < value.count; ++i) {
    const auto length = reader.read<std::uint64_t>();
    const auto text = length ? reader.read_bytes(*length) : std::nullopt;
    if (!text) return std::nullopt;
    strings.push_back(*text);
  }
  return strings;
}

}  // namespace kvarto
