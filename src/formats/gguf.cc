#include "formats/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/printable.h"
#include "base/repeated_name.h"
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
// No published model has more than some 100,000 tensors; room for the records is reserved in steps,
// so that a count alone allocates nothing.
constexpr std::uint64_t kMaxRecords = 1u << 22;
constexpr std::uint64_t kReservedRecords = 4096;

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
    header_.keys.reserve(static_cast<std::size_t>(std::min(num_keys_, kReservedRecords)));
    for (std::uint64_t i = 0; i < num_keys_; ++i) KVARTO_CHECK_OK(read_key(i));
    KVARTO_CHECK_OK(check_unique(header_.keys, Section::kKeys));
    KVARTO_CHECK_OK(read_alignment());
    section_ = Section::kStart;
    KVARTO_CHECK_OK(check_records("tensor_count", num_tensors_, kMinTensorBytes));
    header_.tensors.reserve(static_cast<std::size_t>(std::min(num_tensors_, kReservedRecords)));
    for (std::uint64_t i = 0; i < num_tensors_; ++i) KVARTO_CHECK_OK(read_tensor(i));
    KVARTO_CHECK_OK(check_unique(header_.tensors, Section::kTensors));
    KVARTO_CHECK_OK(place_tensors());
    return std::move(header_);
  }

 private:
  enum class Section : std::uint8_t { kStart, kKeys, kTensors };

  // Names `part` of the record being read. Built only for messages: a header has many records.
  [[nodiscard]] std::string field(std::string_view part) const {
    if (section_ == Section::kStart) return std::string(part);
    const bool is_key = section_ == Section::kKeys;
    const std::string record = record_.empty()
                                   ? fmt::format("{} {}", is_key ? "key" : "tensor", index_)
                               : is_key ? printable(record_)
                                        : fmt::format("tensor \"{}\"", printable(record_));
    return part.empty() ? record : fmt::format("{} ({})", record, part);
  }

  [[nodiscard]] tl::unexpected<Error> bad(std::string_view part, std::string_view found,
                                          std::string_view expected,
                                          ErrorCode code = ErrorCode::kCorruptData) const {
    return fail(code,
                fmt::format("{}: {}: found {}, expected {}", name_, field(part), found, expected));
  }

  // An error for a field that the file's end cuts off.
  [[nodiscard]] tl::unexpected<Error> ends(std::string_view part, std::uint64_t needed) const {
    return bad(part, fmt::format("{} bytes before the file's end", reader_.remaining()),
               fmt::format("{} bytes at offset {}", needed, reader_.position()));
  }

  Status check_count(std::string_view part, std::uint64_t count, std::uint64_t min_bytes) const {
    if (count <= reader_.remaining() / min_bytes) return {};
    return bad(part, fmt::format("{}", count),
               fmt::format("at most {}, as the {} bytes left can hold",
                           reader_.remaining() / min_bytes, reader_.remaining()));
  }

  Status check_records(std::string_view part, std::uint64_t count, std::uint64_t min_bytes) const {
    KVARTO_CHECK_OK(check_count(part, count, min_bytes));
    if (count <= kMaxRecords) return {};
    return bad(part, fmt::format("{}", count), fmt::format("at most {}", kMaxRecords));
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
    KVARTO_CHECK_OK(check_records("metadata_kv_count", num_keys_, kMinKeyBytes));
    return check_records("tensor_count", num_tensors_, kMinTensorBytes);
  }

  // Reads the name of the next record, which begins it.
  Status read_name(Section section, std::uint64_t index, std::uint64_t max_bytes) {
    section_ = section;
    index_ = index;
    record_ = {};
    const auto length = reader_.read<std::uint64_t>();
    if (!length) return ends("length of the name", 8);
    if (*length == 0 || *length > max_bytes) {
      return bad("length of the name", fmt::format("{}", *length),
                 fmt::format("1 to {}", max_bytes));
    }
    const auto name = reader_.read_bytes(*length);
    if (!name) return ends("name", *length);
    record_ = *name;
    return {};
  }

  Status read_key(std::uint64_t index) {
    KVARTO_CHECK_OK(read_name(Section::kKeys, index, kMaxKeyBytes));
    GgufKey key{.name = record_, .value = {}};
    auto type = reader_.read<std::uint32_t>();
    if (!type) return ends("type", 4);
    if (*type == static_cast<std::uint32_t>(GgufType::kArray)) {
      key.value.is_array = true;
      type = reader_.read<std::uint32_t>();
      if (!type) return ends("element type", 4);
      // The specification allows arrays of arrays; no known model has one and no loader reads them.
      if (*type == static_cast<std::uint32_t>(GgufType::kArray)) {
        return bad("", "an array of arrays", "an array of numbers, bools or strings",
                   ErrorCode::kUnsupported);
      }
      const auto count = reader_.read<std::uint64_t>();
      if (!count) return ends("count", 8);
      key.value.count = *count;
    }
    KVARTO_CHECK_OK(read_elements(*type, key.value));
    header_.keys.push_back(key);
    return {};
  }

  // Reads `value.count` elements of `type`.
  Status read_elements(std::uint32_t type, GgufValue& value) {
    const auto element_bytes = value_bytes(type);
    if (!element_bytes) return bad("type", fmt::format("{}", type), "0 to 12");
    value.type = static_cast<GgufType>(type);
    const std::size_t start = reader_.position();
    if (value.type == GgufType::kString) {
      KVARTO_CHECK_OK(skip_strings(value.count));
    } else {
      const auto total = checked_mul(value.count, *element_bytes);
      if (!total || !reader_.read_bytes(*total)) {
        return bad("", fmt::format("{} elements of {} bytes", value.count, *element_bytes),
                   fmt::format("at most the {} bytes left", reader_.remaining()));
      }
    }
    value.bytes = file_.subspan(start, reader_.position() - start);
    return value.type == GgufType::kBool ? check_bools(value) : Status();
  }

  Status skip_strings(std::uint64_t count) {
    KVARTO_CHECK_OK(check_count("number of strings", count, sizeof(std::uint64_t)));
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto length = reader_.read<std::uint64_t>();
      if (!length) return ends(fmt::format("length of string {}", i), 8);
      if (!reader_.read_bytes(*length)) return ends(fmt::format("string {}", i), *length);
    }
    return {};
  }

  Status check_bools(const GgufValue& value) const {
    for (const std::byte byte : value.bytes) {
      if (byte > std::byte{1}) {
        return bad("", fmt::format("{}", std::to_integer<int>(byte)), "0 or 1 for a bool");
      }
    }
    return {};
  }

  template <typename Record>
  Status check_unique(const std::vector<Record>& records, Section section) {
    std::vector<std::string_view> names;
    names.reserve(records.size());
    for (const Record& record : records) names.push_back(record.name);
    const auto twin = repeated_name(names);
    if (!twin) return {};
    section_ = section;
    record_ = names[*twin];
    return bad("", "it twice", "once");
  }

  Status read_alignment() {
    record_ = "general.alignment";
    const GgufValue* value = header_.find(record_);
    if (value == nullptr) return {};
    const auto alignment = gguf_unsigned(*value);
    if (value->type != GgufType::kUint32 || !alignment) {
      return bad("", "another type", "an unsigned 32-bit integer");
    }
    if (*alignment < 8 || !std::has_single_bit(*alignment)) {
      return bad("", fmt::format("{}", *alignment), "a power of two of at least 8");
    }
    alignment_ = *alignment;
    return {};
  }

  Status read_tensor(std::uint64_t index) {
    KVARTO_CHECK_OK(read_name(Section::kTensors, index, kMaxTensorNameBytes));
    GgufTensor tensor{.name = record_};
    const auto num_dims = reader_.read<std::uint32_t>();
    if (!num_dims) return ends("number of dimensions", 4);
    if (*num_dims > kMaxDims) {
      return bad("number of dimensions", fmt::format("{}", *num_dims),
                 fmt::format("at most {}", kMaxDims));
    }
    tensor.num_dims = *num_dims;
    for (std::uint32_t d = 0; d < *num_dims; ++d) {
      const auto dim = reader_.read<std::uint64_t>();
      if (!dim) return ends("dimension", 8);
      if (*dim == 0) return bad(fmt::format("dimension {}", d), "0", "at least 1");
      tensor.dims[d] = *dim;
    }
    const auto type = reader_.read<std::uint32_t>();
    if (!type) return ends("type", 4);
    KVARTO_CHECK_OK(set_type(*type, tensor));
    const auto offset = reader_.read<std::uint64_t>();
    if (!offset) return ends("offset", 8);
    tensor.offset = *offset;
    header_.tensors.push_back(tensor);
    return {};
  }

  Status set_type(std::uint32_t id, GgufTensor& tensor) const {
    const auto type = gguf_tensor_type(id);
    if (!type) {
      const auto removed = gguf_removed_type(id);
      if (!removed) return bad("type", fmt::format("{}", id), "the number of a ggml type");
      return bad("type", fmt::format("{} ({}, removed from the format)", id, *removed),
                 "the number of a current ggml type", ErrorCode::kUnsupported);
    }
    tensor.type = *type;
    const TensorTypeLayout& layout = tensor_type_layout(*type);
    if (tensor.dims[0] % layout.block_elements != 0) {
      return bad("dimension 0", fmt::format("{}", tensor.dims[0]),
                 fmt::format("a multiple of {} for type {}", layout.block_elements, layout.name));
    }
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : tensor.dims) {
      const auto product = checked_mul(elements, dim);
      // The reference implementation counts elements in int64.
      if (!product || *product > std::uint64_t{INT64_MAX}) {
        return bad("dimensions", fmt::format("{}", fmt::join(tensor.dims, " x ")),
                   "fewer than 2^63 elements");
      }
      elements = *product;
    }
    const auto blocks = checked_mul(tensor.dims[0] / layout.block_elements, layout.block_bytes);
    const auto row = blocks ? checked_add(*blocks, layout.row_extra_bytes) : std::nullopt;
    const auto bytes = row ? checked_mul(*row, elements / tensor.dims[0]) : std::nullopt;
    if (!bytes) return bad("dimensions", fmt::format("{}", elements), "fewer than 2^64 bytes");
    tensor.bytes = *bytes;
    return {};
  }

  // Turns offsets within the data section into offsets within the file, and checks that each
  // tensor lies in the file and apart from the others. Holes between them are allowed.
  Status place_tensors() {
    if (header_.tensors.empty()) return {};
    section_ = Section::kStart;
    const std::uint64_t data_start = round_up(reader_.position(), alignment_);
    if (data_start > file_.size()) {
      return bad("tensor data", fmt::format("the file's end at {}", file_.size()),
                 fmt::format("a start at {} (alignment {})", data_start, alignment_));
    }
    section_ = Section::kTensors;
    const std::uint64_t available = file_.size() - data_start;
    for (GgufTensor& tensor : header_.tensors) {
      record_ = tensor.name;
      if (tensor.offset % alignment_ != 0) {
        return bad("offset", fmt::format("{}", tensor.offset),
                   fmt::format("a multiple of the alignment {}", alignment_));
      }
      if (tensor.offset > available || tensor.bytes > available - tensor.offset) {
        return bad("offset", fmt::format("{} for {} bytes", tensor.offset, tensor.bytes),
                   fmt::format("it to end within the {} bytes of tensor data", available));
      }
      tensor.offset += data_start;
    }
    return check_apart();
  }

  Status check_apart() {
    const auto starts_before = [](const GgufTensor* a, const GgufTensor* b) {
      return a->offset < b->offset;
    };
    std::vector<const GgufTensor*> order;
    order.reserve(header_.tensors.size());
    for (const GgufTensor& tensor : header_.tensors) order.push_back(&tensor);
    if (!std::is_sorted(order.begin(), order.end(), starts_before)) {
      std::sort(order.begin(), order.end(), starts_before);
    }
    for (std::size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& before = *order[i - 1];
      if (before.offset + before.bytes <= order[i]->offset) continue;
      record_ = order[i]->name;
      return bad("offset", fmt::format("byte {} of the file", order[i]->offset),
                 fmt::format("it behind tensor \"{}\", which ends at byte {}",
                             printable(before.name), before.offset + before.bytes));
    }
    return {};
  }

  std::span<const std::byte> file_;
  ByteReader reader_;
  std::string_view name_;
  GgufHeader header_;
  std::uint64_t num_keys_ = 0;
  std::uint64_t num_tensors_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
  // The record being read, for messages.
  Section section_ = Section::kStart;
  std::uint64_t index_ = 0;
  std::string_view record_;  // its name, empty until read
};

}  // namespace

const GgufValue* GgufHeader::find(std::string_view key) const {
  const auto record =
      std::find_if(keys.begin(), keys.end(), [&](const GgufKey& k) { return k.name == key; });
  return record == keys.end() ? nullptr : &record->value;
}

Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view name) {
  return Parser(file, name).run();
}

}  // namespace kvarto
