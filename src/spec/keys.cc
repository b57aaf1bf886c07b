#include "spec/keys.h"

#include <fmt/format.h>

#include <cmath>

namespace kvarto {
namespace {

constexpr std::size_t kMaxDescription = 40;

std::string cut(std::string text) {
  if (text.size() > kMaxDescription) text = text.substr(0, kMaxDescription - 3) + "...";
  return text;
}

std::optional<std::int64_t> as_integer(const Value& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value.data)) return *number;
  if (const auto* real = std::get_if<double>(&value.data)) {
    // 2^63 is the first double that int64 cannot hold.
    if (std::nearbyint(*real) == *real && std::abs(*real) < 9.2e18) {
      return static_cast<std::int64_t>(*real);
    }
  }
  return std::nullopt;
}

}  // namespace

const Value* Value::find(std::string_view key) const {
  const auto* map = std::get_if<ValueMap>(&data);
  if (map == nullptr) return nullptr;
  for (const auto& [name, value] : *map) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string describe(const Value& value) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(std::int64_t i) const { return fmt::format("{}", i); }
    std::string operator()(double d) const { return fmt::format("{}", d); }
    std::string operator()(const std::string& s) const { return cut(fmt::format("\"{}\"", s)); }
    std::string operator()(const ValueList& l) const {
      return fmt::format("a list of {}", l.size());
    }
    std::string operator()(const ValueMap& m) const { return fmt::format("a map of {}", m.size()); }
  };
  return std::visit(Visitor{}, value.data);
}

std::string Keys::name(std::string_view key) const {
  return fmt::format("{}: {}{}", where_, path_, key);
}

const Value* Keys::find(std::string_view key) const {
  const Value* value = map_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool Keys::has(std::string_view key) const { return find(key) != nullptr; }

bool Keys::is_null(std::string_view key) const {
  const Value* value = map_->find(key);
  return value != nullptr && value->is_null();
}

std::optional<Keys> Keys::child(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr || !std::holds_alternative<ValueMap>(value->data)) return std::nullopt;
  return Keys(*value, where_, fmt::format("{}{}.", path_, key));
}

tl::unexpected<Error> Keys::bad(std::string_view key, std::string_view found,
                                std::string_view expected) const {
  return fail(ErrorCode::kCorruptData,
              fmt::format("{}: found {}, expected {}", name(key), found, expected));
}

tl::unexpected<Error> Keys::missing(std::string_view key, std::string_view expected) const {
  return fail(ErrorCode::kCorruptData,
              fmt::format("{}: missing, expected {}", name(key), expected));
}

Result<std::optional<std::int64_t>> Keys::integer(std::initializer_list<std::string_view> names,
                                                  std::int64_t min, std::int64_t max) const {
  for (std::string_view key : names) {
    const Value* value = find(key);
    if (value == nullptr) continue;
    const auto number = as_integer(*value);
    if (!number || *number < min || *number > max) {
      return bad(key, describe(*value), fmt::format("an integer from {} to {}", min, max));
    }
    return std::optional<std::int64_t>(*number);
  }
  return std::optional<std::int64_t>();
}

Result<std::int64_t> Keys::required_integer(std::initializer_list<std::string_view> names,
                                            std::int64_t min, std::int64_t max) const {
  KVARTO_TRY(const auto number, integer(names, min, max));
  if (!number) return missing(*names.begin(), fmt::format("an integer from {} to {}", min, max));
  return *number;
}

Result<std::optional<double>> Keys::real(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (const auto* d = std::get_if<double>(&value->data)) return std::optional<double>(*d);
  if (const auto* i = std::get_if<std::int64_t>(&value->data)) {
    return std::optional<double>(static_cast<double>(*i));
  }
  return bad(key, describe(*value), "a number");
}

Result<std::optional<bool>> Keys::boolean(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto* b = std::get_if<bool>(&value->data)) return std::optional<bool>(*b);
  return bad(key, describe(*value), "true or false");
}

Result<std::optional<std::string>> Keys::string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (const auto* s = std::get_if<std::string>(&value->data)) return std::optional<std::string>(*s);
  return bad(key, describe(*value), "a string");
}

Result<std::optional<std::vector<std::int64_t>>> Keys::integers(std::string_view key,
                                                                std::int64_t min,
                                                                std::int64_t max) const {
  using Numbers = std::vector<std::int64_t>;
  const Value* value = find(key);
  if (value == nullptr) return std::optional<Numbers>();
  const auto* list = std::get_if<ValueList>(&value->data);
  if (list == nullptr) return bad(key, describe(*value), "a list of integers");
  Numbers numbers;
  for (const Value& item : *list) {
    const auto number = as_integer(item);
    if (!number || *number < min || *number > max) {
      return bad(fmt::format("{}[{}]", key, numbers.size()), describe(item),
                 fmt::format("an integer from {} to {}", min, max));
    }
    numbers.push_back(*number);
  }
  return std::optional<Numbers>(std::move(numbers));
}

Result<std::optional<std::vector<std::string>>> Keys::strings(std::string_view key) const {
  using Words = std::vector<std::string>;
  const Value* value = find(key);
  if (value == nullptr) return std::optional<Words>();
  const auto* list = std::get_if<ValueList>(&value->data);
  if (list == nullptr) return bad(key, describe(*value), "a list of strings");
  Words words;
  for (const Value& item : *list) {
    const auto* word = std::get_if<std::string>(&item.data);
    if (word == nullptr) {
      return bad(fmt::format("{}[{}]", key, words.size()), describe(item), "a string");
    }
    words.push_back(*word);
  }
  return std::optional<Words>(std::move(words));
}

}  // namespace kvarto
