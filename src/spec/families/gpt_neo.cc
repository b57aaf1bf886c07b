// GPT-Neo: `attention_types` is a list of [[kinds], repetitions].

#include <fmt/format.h>

#include "spec/families/all.h"
#include "spec/families/dense_keys.h"

namespace kvarto {
namespace {

constexpr DenseType kGptNeo{"gpt_neo",   "GPTNeoConfig", 24,   2048, 16,
                            kOneForEach, kDerived,       2048, {}};
constexpr std::int64_t kWindow = 256;  // window_size of GPTNeoConfig

std::optional<LayerKind> kind_of(const Value& value) {
  const auto* word = std::get_if<std::string>(&value.data);
  if (word != nullptr && *word == "global") return LayerKind::kFull;
  if (word != nullptr && *word == "local") return LayerKind::kSliding;
  return std::nullopt;
}

// Appends one item of attention_types: its kinds, as often as it says. Stops beyond `num_layers`.
bool append_item(const Value& item, std::size_t num_layers, std::vector<LayerKind>& kinds) {
  const auto* pair = std::get_if<ValueList>(&item.data);
  if (pair == nullptr || pair->size() != 2) return false;
  const auto* words = std::get_if<ValueList>(&(*pair)[0].data);
  const auto* times = std::get_if<std::int64_t>(&(*pair)[1].data);
  if (words == nullptr || words->empty() || times == nullptr || *times < 0) return false;
  for (std::int64_t i = 0; i < *times && kinds.size() <= num_layers; ++i) {
    for (const Value& word : *words) {
      const auto kind = kind_of(word);
      if (!kind) return false;
      kinds.push_back(*kind);
    }
  }
  return true;
}

Result<std::vector<LayerKind>> read_kinds(ClassKeys& read, std::int64_t num_layers) {
  const Keys& keys = read.keys();
  std::vector<LayerKind> kinds;
  const Value* value = keys.find("attention_types");
  if (value == nullptr) {
    read.note_default("attention_types", "global and local layers in turn");
    for (std::int64_t i = 0; i < num_layers; ++i) {
      kinds.push_back(i % 2 == 0 ? LayerKind::kFull : LayerKind::kSliding);
    }
    return kinds;
  }
  const auto* items = std::get_if<ValueList>(&value->data);
  bool is_valid = items != nullptr;
  for (std::size_t i = 0; is_valid && i < items->size(); ++i) {
    is_valid = append_item((*items)[i], static_cast<std::size_t>(num_layers), kinds);
  }
  if (!is_valid) {
    return keys.bad("attention_types", describe(*value),
                    "a list of [[\"global\" or \"local\", ...], repetitions]");
  }
  if (kinds.size() != static_cast<std::size_t>(num_layers)) {
    return keys.bad("attention_types", fmt::format("{} layers or more", kinds.size()),
                    fmt::format("{} layers", num_layers));
  }
  return kinds;
}

}  // namespace

Result<ModelSpec> read_gpt_neo_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kGptNeo.config_class);
  KVARTO_TRY(const DenseGeometry geometry, read_dense_geometry(read, kGptNeo));
  KVARTO_TRY(const std::vector<LayerKind> kinds, read_kinds(read, geometry.frame.num_layers));
  KVARTO_TRY(const std::int64_t window, read.count({"window_size"}, kWindow, kMaxTokens));
  std::vector<LayerSpec> layers;
  for (const LayerKind kind : kinds) {
    layers.push_back(
        dense_layer(with_kind(geometry.shape, kind, static_cast<std::uint64_t>(window))));
  }
  return read.model(geometry.frame, layers, {}, root);
}

}  // namespace kvarto
