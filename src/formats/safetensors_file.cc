// Tensor lists of safetensors files on disk: one file, or the shards of an index.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "base/mapped_file.h"
#include "base/printable.h"
#include "formats/json_value.h"
#include "formats/safetensors.h"

namespace kvarto {
namespace {

// An index of 100,000 tensors takes about 10 MB.
constexpr std::size_t kMaxIndexBytes = 100'000'000;

Status append_file(const std::string& path, TensorFile& list) {
  KVARTO_TRY(const MappedFile file, MappedFile::open(path));
  KVARTO_TRY(const SafetensorsHeader header, parse_safetensors(file.bytes(), path));
  const auto index = static_cast<std::uint32_t>(list.files.size());
  list.files.push_back(path);
  list.tensors.reserve(list.tensors.size() + header.tensors.size());
  for (const SafetensorsTensor& tensor : header.tensors) {
    const auto shape = header.shape(tensor);
    list.tensors.push_back({std::string(tensor.name), tensor.type,
                            std::vector<std::uint64_t>(shape.begin(), shape.end()), index,
                            tensor.offset, tensor.bytes});
  }
  return {};
}

// The shards that an index names, each with the tensors it must hold.
using ShardTensors = std::map<std::string, std::vector<std::string_view>>;

Result<ShardTensors> read_weight_map(const Value& root, const std::string& path) {
  const Value* weight_map = root.find("weight_map");
  const auto* names = weight_map == nullptr ? nullptr : std::get_if<ValueMap>(&weight_map->data);
  if (names == nullptr) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: weight_map: found {}, expected a map of tensors to files", path,
                            weight_map == nullptr ? "none" : describe(*weight_map)));
  }
  ShardTensors shards;
  for (const auto& [tensor, value] : *names) {
    const auto* shard = std::get_if<std::string>(&value.data);
    // Shards lie beside their index; a name with a folder in it could point anywhere.
    if (shard == nullptr || !shard->ends_with(".safetensors") ||
        shard->find('/') != std::string::npos || shard->find('\0') != std::string::npos) {
      return fail(ErrorCode::kCorruptData,
                  fmt::format("{}: weight_map.{}: found {}, expected the name of a .safetensors "
                              "file in the same folder",
                              path, printable(tensor), printable(describe(value))));
    }
    shards[*shard].push_back(tensor);
  }
  return shards;
}

// Whether the tensors from `first` on hold all of `wanted`; names the first that is missing.
Status check_holds(const TensorFile& list, std::size_t first,
                   const std::vector<std::string_view>& wanted, const std::string& index_path) {
  std::vector<std::string_view> names;
  for (std::size_t i = first; i < list.tensors.size(); ++i) names.push_back(list.tensors[i].name);
  std::sort(names.begin(), names.end());
  const auto absent = std::find_if(wanted.begin(), wanted.end(), [&](std::string_view name) {
    return !std::binary_search(names.begin(), names.end(), name);
  });
  if (absent == wanted.end()) return {};
  return fail(ErrorCode::kCorruptData,
              fmt::format("{}: tensor \"{}\": found none, expected it as {} says",
                          list.files.back(), printable(*absent), index_path));
}

}  // namespace

Result<TensorFile> read_safetensors_file(const std::string& path) {
  TensorFile list;
  KVARTO_CHECK_OK(append_file(path, list));
  return list;
}

Result<TensorFile> read_safetensors_index(const std::string& path) {
  KVARTO_TRY(const MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > kMaxIndexBytes) {
    return fail(ErrorCode::kCorruptData, fmt::format("{}: found {} bytes, expected at most {}",
                                                     path, file.bytes().size(), kMaxIndexBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  KVARTO_TRY(const Value root, parse_json(text, path));
  KVARTO_TRY(const ShardTensors shards, read_weight_map(root, path));
  TensorFile list;
  for (const auto& [shard, wanted] : shards) {
    const std::string shard_path = (std::filesystem::path(path).parent_path() / shard).string();
    const std::size_t first = list.tensors.size();
    auto status = append_file(shard_path, list);
    if (!status && status.error().code == ErrorCode::kNotFound) {
      return fail(ErrorCode::kNotFound,
                  fmt::format("{}: missing, expected it as {} says", shard_path, path));
    }
    if (!status) return tl::unexpected<Error>(std::move(status).error());
    KVARTO_CHECK_OK(check_holds(list, first, wanted, path));
  }
  return list;
}

}  // namespace kvarto
