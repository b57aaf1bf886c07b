#include "spec/families/class_keys.h"

#include <fmt/format.h>

namespace kvarto {

std::string effective_model_type(const Keys& keys, const Keys& root) {
  for (const Keys* map : {&keys, &root}) {
    const auto type = map->string("model_type");
    if (type.has_value() && type->has_value()) return **type;
  }
  return "";
}

Result<std::int64_t> ClassKeys::count(std::initializer_list<std::string_view> names,
                                      std::int64_t class_default, std::int64_t max) {
  KVARTO_TRY(const auto number, keys_.integer(names, 1, max));
  if (number) return *number;
  for (const std::string_view name : names) {
    if (keys_.is_null(name)) return keys_.bad(name, "null", "an integer");
  }
  if (class_default == 0 || config_class_.empty()) {
    return keys_.missing(*names.begin(), fmt::format("an integer from 1 to {}", max));
  }
  note_default(*names.begin(), fmt::format("{}", class_default));
  return class_default;
}

Result<std::int64_t> ClassKeys::optional_count(std::initializer_list<std::string_view> names,
                                               std::int64_t max) const {
  KVARTO_TRY(const auto number, keys_.integer(names, 1, max));
  return number.value_or(0);
}

void ClassKeys::note_default(std::string_view key, std::string_view value) {
  note(fmt::format("{}: absent, took {}, the default of {}", key, value, config_class_));
}

Result<ModelSpec> ClassKeys::model(const Frame& frame, const std::vector<LayerSpec>& layers,
                                   const std::vector<LayerSpec>& drafts, const Keys& root) {
  KVARTO_TRY(const auto vocab_size,
             keys_.integer({"vocab_size", "padded_vocab_size"}, 0, std::int64_t{UINT32_MAX}));
  ModelSpec spec;
  spec.model_type = effective_model_type(keys_, root);
  spec.num_layers = static_cast<std::uint32_t>(frame.num_layers);
  spec.max_context = static_cast<std::uint64_t>(frame.max_context);
  spec.hidden_size = static_cast<std::uint32_t>(frame.hidden_size);
  spec.vocab_size = static_cast<std::uint32_t>(vocab_size.value_or(0));
  spec.groups = group_layers(layers);
  spec.draft_groups = group_layers(drafts);
  // Draft layers are numbered after the model's own.
  for (LayerGroup& group : spec.draft_groups) {
    for (std::uint32_t& layer : group.layers) layer += spec.num_layers;
  }
  spec.notes = std::move(notes_);
  return spec;
}

}  // namespace kvarto
