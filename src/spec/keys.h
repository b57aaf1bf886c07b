// The keys of a model's configuration, independent of the file format that held them.
//
// `formats` fills a Value tree from JSON or GGUF; the family files of this folder read it through
// Keys, which remembers what was read and words every error with the key's full name.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kvarto/result.h"

namespace kvarto {

struct Value;
struct ValueMember;
using ValueList = std::vector<Value>;
using ValueMap = std::vector<ValueMember>;  // in file order, names unique

// null, bool, integer, real, string, list or map. Integers beyond int64 are held as reals.
struct Value {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, ValueList, ValueMap> data;
  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(data); }
  [[nodiscard]] const Value* find(std::string_view key) const;  // null unless a map with the key
};

struct ValueMember {
  std::string name;
  Value value;
};

// Largest values accepted from a file; beyond them a configuration is refused as contradictory.
inline constexpr std::int64_t kMaxLayers = 4096;
inline constexpr std::int64_t kMaxHeads = 65'536;
inline constexpr std::int64_t kMaxWidth = 1'048'576;
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;

// A view of one map with the name it is known by in messages. Not thread-safe; cheap to copy.
//
// All readers treat an explicit null like an absent key, as the field's config classes do.
class Keys {
 public:
  // `where` is the file's name; `path` the prefix of nested keys ("text_config.").
  Keys(const Value& map, std::string where, std::string path = "")
      : map_(&map), where_(std::move(where)), path_(std::move(path)) {}

  // The name under which errors speak of `key`: "config.json: text_config.head_dim".
  [[nodiscard]] std::string name(std::string_view key) const;
  [[nodiscard]] const std::string& where() const { return where_; }

  [[nodiscard]] bool has(std::string_view key) const;      // present and not null
  [[nodiscard]] bool is_null(std::string_view key) const;  // present and null
  [[nodiscard]] const Value* find(std::string_view key) const;
  // The nested map `key`, or nullopt if absent or not a map.
  [[nodiscard]] std::optional<Keys> child(std::string_view key) const;

  // An integer in [min, max] under the first of the names that is present; nullopt if none is.
  // A real with an integral value is accepted (3.0). Errors: kCorruptData for another kind of
  // value or one out of range, naming key, value and expectation.
  [[nodiscard]] Result<std::optional<std::int64_t>> integer(
      std::initializer_list<std::string_view> names, std::int64_t min, std::int64_t max) const;
  // The same, but an absent key is an error that names the first alias.
  [[nodiscard]] Result<std::int64_t> required_integer(std::initializer_list<std::string_view> names,
                                                      std::int64_t min, std::int64_t max) const;
  [[nodiscard]] Result<std::optional<double>> real(std::string_view key) const;
  [[nodiscard]] Result<std::optional<bool>> boolean(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::string>> string(std::string_view key) const;
  // A list of integers in [min, max].
  [[nodiscard]] Result<std::optional<std::vector<std::int64_t>>> integers(std::string_view key,
                                                                          std::int64_t min,
                                                                          std::int64_t max) const;
  [[nodiscard]] Result<std::optional<std::vector<std::string>>> strings(std::string_view key) const;

  // An error about `key`: "config.json: KEY: found X, expected Y".
  [[nodiscard]] tl::unexpected<Error> bad(std::string_view key, std::string_view found,
                                          std::string_view expected) const;
  [[nodiscard]] tl::unexpected<Error> missing(std::string_view key,
                                              std::string_view expected) const;

 private:
  const Value* map_;
  std::string where_;
  std::string path_;
};

// A short rendering of a value for messages, cut at 40 characters.
[[nodiscard]] std::string describe(const Value& value);

}  // namespace kvarto
