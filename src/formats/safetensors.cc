#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/printable.h"
#include "base/repeated_name.h"
#include "formats/json_cursor.h"

namespace kvarto {
namespace {

// Limits and names of the format, safetensors 0.7.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadataName = "__metadata__";

constexpr std::array kTypes = {
    TensorType::kF64,    TensorType::kF32,        TensorType::kF16,        TensorType::kBF16,
    TensorType::kI64,    TensorType::kI32,        TensorType::kI16,        TensorType::kI8,
    TensorType::kU64,    TensorType::kU32,        TensorType::kU16,        TensorType::kU8,
    TensorType::kBool,   TensorType::kC64,        TensorType::kF8E4M3,     TensorType::kF8E5M2,
    TensorType::kF8E8M0, TensorType::kF8E4M3Fnuz, TensorType::kF8E5M2Fnuz, TensorType::kF6E2M3,
    TensorType::kF6E3M2, TensorType::kF4};

std::optional<TensorType> type_from_name(std::string_view name) {
  const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](TensorType t) { return tensor_type_layout(t).name == name; });
  if (type == kTypes.end()) return std::nullopt;
  return *type;
}

// Reads one header. The grammar is fixed, so there is neither recursion nor a tree of values.
class Parser {
 public:
  Parser(std::string_view text, std::uint64_t available, std::string_view name)
      : cursor_(text, name), available_(available), name_(name) {}

  Result<SafetensorsHeader> run(std::uint64_t data_start) {
    KVARTO_CHECK_OK(cursor_.expect('{'));
    KVARTO_CHECK_OK(read_members());
    KVARTO_CHECK_OK(cursor_.expect_end());
    KVARTO_CHECK_OK(check_unique());
    KVARTO_CHECK_OK(check_filled());
    for (SafetensorsTensor& tensor : header_.tensors) tensor.offset += data_start;
    return std::move(header_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> bad(const SafetensorsTensor& tensor, std::string_view part,
                                          std::string_view found, std::string_view expected) const {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: tensor \"{}\" ({}): found {}, expected {}", name_,
                            printable(tensor.name), part, found, expected));
  }

  Status read_members() {
    if (cursor_.accept('}')) return {};
    do {
      KVARTO_TRY(const std::string_view name, cursor_.string(header_.decoded_names));
      KVARTO_CHECK_OK(cursor_.expect(':'));
      KVARTO_CHECK_OK(name == kMetadataName ? read_metadata() : read_tensor(name));
    } while (cursor_.accept(','));
    return cursor_.expect('}');
  }

  // A map of strings; nothing in it is used.
  Status read_metadata() {
    if (std::exchange(has_metadata_, true)) {
      return fail(ErrorCode::kCorruptData,
                  fmt::format("{}: {}: found it twice, expected once", name_, kMetadataName));
    }
    KVARTO_CHECK_OK(cursor_.expect('{'));
    if (cursor_.accept('}')) return {};
    std::vector<std::string_view> keys;
    do {
      KVARTO_TRY(const std::string_view key, cursor_.string(scratch_));
      keys.push_back(key);
      KVARTO_CHECK_OK(cursor_.expect(':'));
      KVARTO_CHECK_OK(cursor_.string(scratch_).map([](std::string_view) {}));
    } while (cursor_.accept(','));
    KVARTO_CHECK_OK(cursor_.expect('}'));
    if (const auto twin = repeated_name(keys)) {
      return fail(ErrorCode::kCorruptData,
                  fmt::format("{}: {}: found key \"{}\" twice, expected once", name_, kMetadataName,
                              printable(keys[*twin])));
    }
    return {};
  }

  Status read_tensor(std::string_view name) {
    SafetensorsTensor tensor{.name = name};
    cursor_.enter("tensor", name);
    bool has_type = false;
    bool has_shape = false;
    bool has_offsets = false;
    KVARTO_CHECK_OK(cursor_.expect('{'));
    do {
      KVARTO_TRY(const std::string_view key, cursor_.string(scratch_));
      KVARTO_CHECK_OK(cursor_.expect(':'));
      if (key == "dtype" && !std::exchange(has_type, true)) {
        KVARTO_CHECK_OK(read_type(tensor));
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        KVARTO_CHECK_OK(read_shape(tensor));
      } else if (key == "data_offsets" && !std::exchange(has_offsets, true)) {
        KVARTO_CHECK_OK(read_offsets(tensor));
      } else {
        return bad(tensor, "keys", fmt::format("\"{}\"", printable(key)),
                   "each of dtype, shape and data_offsets once");
      }
      cursor_.enter("tensor", name);
    } while (cursor_.accept(','));
    KVARTO_CHECK_OK(cursor_.expect('}'));
    if (!has_type || !has_shape || !has_offsets) {
      return bad(tensor,
                 !has_type    ? "dtype"
                 : !has_shape ? "shape"
                              : "data_offsets",
                 "none", "each of dtype, shape and data_offsets once");
    }
    KVARTO_CHECK_OK(check_size(tensor));
    cursor_.enter("", "");
    header_.tensors.push_back(tensor);
    return {};
  }

  Status read_type(SafetensorsTensor& tensor) {
    KVARTO_TRY(const std::string_view text, cursor_.string(scratch_));
    const auto type = type_from_name(text);
    if (!type) {
      return bad(tensor, "dtype", fmt::format("\"{}\"", printable(text)),
                 "a type of the format such as \"F32\" or \"BF16\"");
    }
    tensor.type = *type;
    return {};
  }

  Status read_shape(SafetensorsTensor& tensor) {
    tensor.first_dim = header_.dims.size();
    cursor_.enter("shape of tensor", tensor.name);
    KVARTO_CHECK_OK(cursor_.expect('['));
    if (cursor_.accept(']')) return {};
    do {
      KVARTO_TRY(const std::uint64_t dim, cursor_.whole_number());
      header_.dims.push_back(dim);
    } while (cursor_.accept(','));
    tensor.num_dims = header_.dims.size() - tensor.first_dim;
    return cursor_.expect(']');
  }

  Status read_offsets(SafetensorsTensor& tensor) {
    cursor_.enter("data_offsets of tensor", tensor.name);
    KVARTO_CHECK_OK(cursor_.expect('['));
    KVARTO_TRY(const std::uint64_t begin, cursor_.whole_number());
    KVARTO_CHECK_OK(cursor_.expect(','));
    KVARTO_TRY(const std::uint64_t end, cursor_.whole_number());
    KVARTO_CHECK_OK(cursor_.expect(']'));
    if (begin > end || end > available_) {
      return bad(tensor, "data_offsets", fmt::format("[{}, {}]", begin, end),
                 fmt::format("a range within the {} bytes behind the header", available_));
    }
    tensor.offset = begin;
    tensor.bytes = end - begin;
    return {};
  }

  Status check_size(const SafetensorsTensor& tensor) const {
    const TensorTypeLayout& layout = tensor_type_layout(tensor.type);
    const auto shape = header_.shape(tensor);
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : shape) {
      const auto product = checked_mul(elements, dim);
      if (!product) {
        return bad(
            tensor, "shape",
            fmt::format("[{}]",
                        fmt::join(shape.first(std::min<std::size_t>(shape.size(), 8)), ", ")),
            "fewer than 2^64 elements");
      }
      elements = *product;
    }
    if (elements % layout.block_elements != 0) {
      return bad(tensor, "shape", fmt::format("{} elements", elements),
                 fmt::format("a multiple of {} so that type {} fills whole bytes",
                             layout.block_elements, layout.name));
    }
    const auto bytes = checked_mul(elements / layout.block_elements, layout.block_bytes);
    if (!bytes || *bytes != tensor.bytes) {
      return bad(tensor, "data_offsets", fmt::format("{} bytes", tensor.bytes),
                 bytes ? fmt::format("{} for {} elements of {}", *bytes, elements, layout.name)
                       : "fewer than 2^64");
    }
    return {};
  }

  Status check_unique() const {
    std::vector<std::string_view> names;
    names.reserve(header_.tensors.size());
    for (const SafetensorsTensor& tensor : header_.tensors) names.push_back(tensor.name);
    const auto twin = repeated_name(names);
    if (!twin) return {};
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: tensor \"{}\": found it twice, expected once", name_,
                            printable(names[*twin])));
  }

  // The format allows neither holes nor overlaps, nor bytes behind the last tensor.
  Status check_filled() const {
    std::vector<const SafetensorsTensor*> order;
    order.reserve(header_.tensors.size());
    for (const SafetensorsTensor& tensor : header_.tensors) order.push_back(&tensor);
    const auto starts_before = [](const SafetensorsTensor* a, const SafetensorsTensor* b) {
      return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
    };
    if (!std::is_sorted(order.begin(), order.end(), starts_before)) {
      std::sort(order.begin(), order.end(), starts_before);
    }
    std::uint64_t end = 0;
    for (const SafetensorsTensor* tensor : order) {
      if (tensor->offset != end) {
        return bad(*tensor, "data_offsets", fmt::format("a start at {}", tensor->offset),
                   fmt::format("{}, where the tensor before it ends", end));
      }
      end += tensor->bytes;
    }
    if (end == available_) return {};
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: tensor data: found {} bytes, expected the {} of all tensors",
                            name_, available_, end));
  }

  JsonCursor cursor_;
  std::uint64_t available_;
  std::string_view name_;
  SafetensorsHeader header_;
  bool has_metadata_ = false;
  std::deque<std::string> scratch_;  // decoded strings other than tensor names
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file,
                                            std::string_view name) {
  ByteReader reader(file);
  const auto length = reader.read<std::uint64_t>();
  if (!length) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: header length: found {} bytes, expected 8", name, file.size()));
  }
  if (*length < 2 || *length > kMaxHeaderBytes) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: header length: found {}, expected 2 to {}", name, *length,
                            kMaxHeaderBytes));
  }
  if (*length > reader.remaining()) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: header length: found {}, expected no more than the {} bytes "
                            "behind it",
                            name, *length, reader.remaining()));
  }
  const std::string_view text = *reader.read_bytes(*length);
  if (text[0] != '{') {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: header: found \"{}\" first, expected \"{{\"", name,
                            printable(text.substr(0, 1))));
  }
  return Parser(text, reader.remaining(), name).run(reader.position());
}

}  // namespace kvarto
