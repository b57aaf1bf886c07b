// Models split over several GGUF files, as gguf-split writes them.

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/printable.h"
#include "base/repeated_name.h"
#include "formats/gguf.h"

namespace kvarto {
namespace {

// Sources: gguf-split's file names and its keys `split.no` (from 0), `split.count`,
// `split.tensors.count`.
constexpr std::uint64_t kMaxParts = 99'999;  // five digits in the name
constexpr std::string_view kTailPattern = "-00001-of-00001.gguf";

struct SplitName {
  std::string prefix;
  std::uint64_t number = 0;  // from 1
  std::uint64_t count = 0;
};

std::optional<std::uint64_t> five_digits(std::string_view text) {
  std::uint64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return number;
}

std::optional<SplitName> split_name(const std::string& path) {
  if (path.size() <= kTailPattern.size()) return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(path.size() - kTailPattern.size());
  const auto number = five_digits(tail.substr(1, 5));
  const auto count = five_digits(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" || !number ||
      !count) {
    return std::nullopt;
  }
  return SplitName{path.substr(0, path.size() - kTailPattern.size()), *number, *count};
}

std::string part_path(const SplitName& name, std::uint64_t number) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", name.prefix, number, name.count);
}

Result<GgufPart> open_part(std::string path) {
  KVARTO_TRY(MappedFile file, MappedFile::open(path));
  KVARTO_TRY(GgufHeader header, parse_gguf(file.bytes(), path));
  return GgufPart{std::move(path), std::move(file), std::move(header)};
}

// The number under `key`, 0 where there is none.
Result<std::uint64_t> split_number(const GgufPart& part, std::string_view key) {
  const GgufValue* value = part.header.find(key);
  if (value == nullptr) return std::uint64_t{0};
  const auto number = gguf_unsigned(*value);
  if (!number) {
    return fail(
        ErrorCode::kCorruptData,
        fmt::format("{}: {}: found another type, expected an unsigned integer", part.path, key));
  }
  return *number;
}

tl::unexpected<Error> contradiction(const std::string& path, std::string_view key,
                                    std::uint64_t found, std::uint64_t expected) {
  return fail(ErrorCode::kCorruptData,
              fmt::format("{}: {}: found {}, expected {}", path, key, found, expected));
}

Status check_part(const GgufPart& part, std::uint64_t number, std::uint64_t count) {
  KVARTO_TRY(const std::uint64_t no, split_number(part, "split.no"));
  if (no != number - 1) return contradiction(part.path, "split.no", no, number - 1);
  KVARTO_TRY(const std::uint64_t stated, split_number(part, "split.count"));
  if (stated != count) return contradiction(part.path, "split.count", stated, count);
  return {};
}

// Tensors of all parts: as many as stated, and no name in two parts.
Status check_tensors(const GgufFile& file) {
  std::vector<std::string_view> names;
  for (const GgufPart& part : file.parts) {
    for (const GgufTensor& tensor : part.header.tensors) names.push_back(tensor.name);
  }
  if (const auto twin = repeated_name(names)) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: tensor \"{}\": found it in two parts, expected it in one",
                            file.parts[0].path, printable(names[*twin])));
  }
  constexpr std::string_view kKey = "split.tensors.count";
  if (file.parts[0].header.find(kKey) == nullptr) return {};
  KVARTO_TRY(const std::uint64_t stated, split_number(file.parts[0], kKey));
  if (stated != names.size()) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: {}: found {}, expected the {} tensors of all parts",
                            file.parts[0].path, kKey, stated, names.size()));
  }
  return {};
}

}  // namespace

Result<GgufFile> open_gguf(const std::string& path) {
  GgufFile file;
  KVARTO_TRY(GgufPart named, open_part(path));
  KVARTO_TRY(const std::uint64_t count, split_number(named, "split.count"));
  if (count <= 1) {
    file.parts.push_back(std::move(named));
    return file;
  }
  const auto name = split_name(path);
  if (!name || name->count != count || name->number == 0 || name->number > count ||
      count > kMaxParts) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: split.count: found {}, expected a file named "
                            "NAME-00001-of-{:05}.gguf or one of its other parts",
                            path, count, count));
  }
  for (std::uint64_t number = 1; number <= count; ++number) {
    if (number == name->number) {
      file.parts.push_back(std::move(named));
    } else {
      auto part = open_part(part_path(*name, number));
      if (!part && part.error().code == ErrorCode::kNotFound) {
        return fail(ErrorCode::kNotFound,
                    fmt::format("{}: missing, expected part {} of the {} that {} names",
                                part_path(*name, number), number, count, path));
      }
      if (!part) return tl::unexpected<Error>(std::move(part).error());
      file.parts.push_back(std::move(part).value());
    }
    KVARTO_CHECK_OK(check_part(file.parts.back(), number, count));
  }
  KVARTO_CHECK_OK(check_tensors(file));
  return file;
}

TensorFile gguf_tensor_file(const GgufFile& file) {
  TensorFile list;
  for (const GgufPart& part : file.parts) {
    const auto index = static_cast<std::uint32_t>(list.files.size());
    list.files.push_back(part.path);
    for (const GgufTensor& tensor : part.header.tensors) {
      Tensor copy;
      copy.name = std::string(tensor.name);
      copy.type = tensor.type;
      copy.shape.assign(tensor.dims.begin(), tensor.dims.begin() + tensor.num_dims);
      std::reverse(copy.shape.begin(), copy.shape.end());
      copy.file = index;
      copy.offset = tensor.offset;
      copy.bytes = tensor.bytes;
      list.tensors.push_back(std::move(copy));
    }
  }
  return list;
}

}  // namespace kvarto
