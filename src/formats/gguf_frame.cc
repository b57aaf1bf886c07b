#include "formats/gguf_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace kvarto {
namespace {

std::optional<std::int64_t> as_number(const Value& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value.data)) return *number;
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? 1 : 0;
  return std::nullopt;
}

Result<std::int64_t> number_in(const GgufFrame& frame, const std::string& key, const Value& value,
                               std::int64_t max) {
  const auto number = as_number(value);
  if (number && *number >= 0 && *number <= max) return *number;
  return frame.keys.bad(key, describe(value), fmt::format("an integer from 0 to {}", max));
}

// Block `block` is one of those that see everything, by a period.
bool is_full(const GgufWindowRule& rule, std::int64_t period, std::uint32_t block) {
  if (period == 0) return false;
  const std::int64_t place = static_cast<std::int64_t>(block) % period;
  return rule.is_full_first ? place == 0 : place == period - 1;
}

// What the file or the architecture says about which blocks are windowed; nullopt = nothing.
Result<std::optional<std::vector<bool>>> read_windowed(const GgufFrame& frame) {
  using Flags = std::vector<bool>;
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  const Value* pattern = frame.keys.find(kKey);
  const GgufWindowRule& rule = frame.rule.window;
  Flags flags(frame.num_blocks, false);
  if (pattern != nullptr && std::holds_alternative<ValueList>(pattern->data)) {
    KVARTO_TRY(const auto listed, read_per_block(frame, kKey, INT32_MAX, 0));
    for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = listed[i] != 0;
    return std::optional<Flags>(std::move(flags));
  }
  std::int64_t period = rule.period;
  if (pattern != nullptr) {
    KVARTO_TRY(period, number_in(frame, std::string(kKey), *pattern, kMaxLayers));
  } else if (rule.kind == GgufWindowRule::Kind::kNone) {
    return std::optional<Flags>();
  }
  // Drafts see everything unless a list says otherwise.
  for (std::uint32_t i = 0; i < frame.num_layers; ++i) flags[i] = !is_full(rule, period, i);
  return std::optional<Flags>(std::move(flags));
}

}  // namespace

GgufTensorNames::GgufTensorNames(std::span<const GgufHeader* const> parts) {
  for (const GgufHeader* part : parts) {
    for (const GgufTensor& tensor : part->tensors) names_.push_back(tensor.name);
  }
  std::sort(names_.begin(), names_.end());
}

bool GgufTensorNames::has(std::string_view name) const {
  return std::binary_search(names_.begin(), names_.end(), name);
}

bool GgufTensorNames::has_in_block(std::uint32_t block, std::string_view rest) const {
  const std::string prefix = fmt::format("blk.{}.{}", block, rest);
  const auto first = std::lower_bound(names_.begin(), names_.end(), std::string_view(prefix));
  return first != names_.end() && first->starts_with(prefix);
}

Result<std::vector<std::int64_t>> read_per_block(const GgufFrame& frame, std::string_view key,
                                                 std::int64_t max, std::int64_t fallback) {
  const Value* value = frame.keys.find(key);
  if (value == nullptr) return std::vector<std::int64_t>(frame.num_blocks, fallback);
  const std::string name(key);
  const auto* list = std::get_if<ValueList>(&value->data);
  if (list == nullptr) {
    KVARTO_TRY(const std::int64_t number, number_in(frame, name, *value, max));
    return std::vector<std::int64_t>(frame.num_blocks, number);
  }
  if (list->size() != frame.num_blocks && list->size() != frame.num_layers) {
    return frame.keys.bad(key, fmt::format("a list of {}", list->size()),
                          fmt::format("one number, or {}, one a block", frame.num_blocks));
  }
  std::vector<std::int64_t> numbers;
  for (const Value& item : *list) {
    KVARTO_TRY(const std::int64_t number,
               number_in(frame, fmt::format("{}[{}]", key, numbers.size()), item, max));
    numbers.push_back(number);
  }
  numbers.resize(frame.num_blocks, numbers.back());
  return numbers;
}

Result<std::vector<GgufWindow>> read_gguf_windows(GgufFrame& frame) {
  constexpr std::string_view kKey = "attention.sliding_window";
  const GgufWindowRule& rule = frame.rule.window;
  KVARTO_TRY(const auto stated, frame.keys.integer({kKey}, 0, kMaxTokens));
  KVARTO_TRY(const auto windowed, read_windowed(frame));
  std::vector<GgufWindow> windows(frame.num_blocks);
  if (!windowed) {
    if (stated.value_or(0) > 0) {
      frame.notes.push_back(fmt::format(
          "{}: {} tokens are not applied, as llama.cpp does not for this architecture: the file "
          "says nothing about which layers have a window",
          kKey, *stated));
    }
    return windows;
  }
  const bool has_default =
      frame.rule.default_window_layers == 0 || frame.rule.default_window_layers == frame.num_layers;
  const auto fallback = has_default ? static_cast<std::int64_t>(rule.default_window) : 0;
  const bool is_any = std::find(windowed->begin(), windowed->end(), true) != windowed->end();
  const bool is_listed = frame.keys.has("attention.sliding_window_pattern");
  if (is_any && !stated && fallback == 0 && (is_listed || rule.is_required)) {
    return frame.keys.missing(kKey, fmt::format("an integer from 0 to {}", kMaxTokens));
  }
  const bool is_chunk = rule.kind == GgufWindowRule::Kind::kChunk;
  std::uint64_t tokens = static_cast<std::uint64_t>(stated.value_or(fallback));
  // Llama 4: the key only switches the chunks off; their size is the architecture's.
  if (is_chunk && tokens != 0) tokens = rule.default_window;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (!(*windowed)[i]) continue;
    (is_chunk ? windows[i].chunk : windows[i].window) = tokens;
  }
  return windows;
}

}  // namespace kvarto
