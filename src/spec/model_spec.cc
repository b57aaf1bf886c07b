#include "kvarto/model_spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvarto {
namespace {

bool is_same_kind(const LayerGroup& group, const LayerSpec& layer) {
  return group.architecture == layer.architecture && group.query == layer.query &&
         group.streams == layer.streams;
}

// A type that a user may ask for: a codec, or one of the two words that are not codecs.
struct RequestedType {
  std::optional<Codec> codec;
  bool is_auto = false;
  bool is_packed = false;
};

Result<RequestedType> parse_type(const std::string& name) {
  if (name == "auto") return RequestedType{.is_auto = true};
  if (name == "fp8_ds_mla") return RequestedType{.is_packed = true};
  if (name == "fp8") return RequestedType{.codec = Codec::kFp8E4M3};
  const auto codec = codec_from_name(name);
  const auto names = cache_type_names();
  if (!codec || std::find(names.begin(), names.end(), name) == names.end()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cache type \"{}\" is unknown, expected one of {}", name,
                            fmt::join(names, " ")));
  }
  return RequestedType{.codec = codec};
}

// Index keys in fp8 always carry scales, one f32 per 128 elements (the 132-byte row).
Result<RequestedType> parse_index_type(const std::string& name) {
  if (name == "fp8") return RequestedType{.codec = Codec::kFp8Scaled128};
  KVARTO_TRY(const RequestedType type, parse_type(name));
  if (type.is_packed) {
    return fail(
        ErrorCode::kInvalidArgument,
        "index type fp8_ds_mla is not one of index keys, expected a type of one field, as bf16, "
        "fp8 or mxfp4");
  }
  return type;
}

Status set_codec(Field& field, Codec codec, const std::string& where) {
  const CodecInfo& info = codec_info(codec);
  if (!info.is_partial_group_allowed && field.width % info.group_elements != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: type {} needs a width that is a multiple of {}, found {}", where,
                            info.name, info.group_elements, field.width));
  }
  field.codec = codec;
  return {};
}

struct Request {
  RequestedType key, value;
  std::optional<RequestedType> index;  // unset = the user named none
};

// The type of K where it is one of 16 or 32 bits, which summaries and index keys may follow.
std::optional<Codec> wide_codec(const RequestedType& key) {
  if (!key.codec || codec_info(*key.codec).element_bits < 16) return std::nullopt;
  return key.codec;
}

Result<Codec> codec_in_force(const Stream& stream, const Field& field, const Request& request) {
  switch (field.role) {
    case CodecRole::kIndex:
      if (request.index) return request.index->codec.value_or(field.native);
      [[fallthrough]];
    case CodecRole::kFixed:
      return field.follows_wide_key ? wide_codec(request.key).value_or(field.native) : field.native;
    case CodecRole::kKey:
    case CodecRole::kValue:
      break;
  }
  const RequestedType& type = field.role == CodecRole::kValue ? request.value : request.key;
  if (!type.is_packed) return type.codec.value_or(field.native);
  if (!stream.has_packed_form) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {}: type fp8_ds_mla needs a latent row with such a form, "
                            "this model's stream has none",
                            stream.name));
  }
  return field.packed;
}

Status set_types(Stream& stream, const Request& request) {
  const bool is_packed = request.key.is_packed && stream.has_packed_form;
  bool has_packed_codecs = true;
  for (Field& field : stream.fields) {
    KVARTO_TRY(const Codec codec, codec_in_force(stream, field, request));
    has_packed_codecs = has_packed_codecs && codec == field.packed;
    KVARTO_CHECK_OK(
        set_codec(field, codec, fmt::format("stream {}, field {}", stream.name, field.name)));
  }
  // `auto` takes the packed form where the release's own format is exactly that form.
  const bool is_native_packed = request.key.is_auto && stream.has_packed_form && has_packed_codecs;
  const bool is_padded = is_packed || is_native_packed;
  stream.row_pad_bytes = is_padded ? stream.packed_row_pad_bytes : 0;
  stream.block_align_bytes = is_padded ? stream.packed_block_align_bytes : 1;
  stream.scales_in_footer =
      stream.always_scales_in_footer || (is_padded && stream.packed_scales_in_footer);
  return {};
}

Result<Request> parse_request(const CacheTypes& types) {
  KVARTO_TRY(const RequestedType key, parse_type(types.key));
  KVARTO_TRY(const RequestedType value, parse_type(types.value));
  Request request{key, value, std::nullopt};
  if (!types.index.empty()) {
    KVARTO_TRY(request.index, parse_index_type(types.index));
  }
  return request;
}

bool contains(std::span<const std::uint32_t> layers, std::uint32_t layer) {
  return std::find(layers.begin(), layers.end(), layer) != layers.end();
}

const LayerGroup* group_of(const ModelSpec& model, std::uint32_t layer) {
  const auto found =
      std::find_if(model.groups.begin(), model.groups.end(),
                   [&](const LayerGroup& group) { return contains(group.layers, layer); });
  return found == model.groups.end() ? nullptr : &*found;
}

// Borrowed streams take the codecs and the padding of their owners'.
void follow_owners(ModelSpec& model) {
  for (LayerGroup& group : model.groups) {
    for (Stream& stream : group.streams) {
      if (!stream.owner_layer) continue;
      const LayerGroup* owner = group_of(model, *stream.owner_layer);
      if (owner == nullptr) continue;
      const auto own = std::find_if(owner->streams.begin(), owner->streams.end(),
                                    [&](const Stream& each) { return each.name == stream.name; });
      if (own == owner->streams.end() || own->fields.size() != stream.fields.size()) continue;
      for (std::size_t i = 0; i < stream.fields.size(); ++i) {
        stream.fields[i].codec = own->fields[i].codec;
      }
      stream.row_pad_bytes = own->row_pad_bytes;
      stream.block_align_bytes = own->block_align_bytes;
      stream.scales_in_footer = own->scales_in_footer;
    }
  }
}

}  // namespace

std::vector<LayerGroup> group_layers(const std::vector<LayerSpec>& layers) {
  std::vector<LayerGroup> groups;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec& layer = layers[i];
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const LayerGroup& g) { return is_same_kind(g, layer); });
    if (group == groups.end()) {
      groups.push_back({layer.architecture, layer.query, {}, layer.streams});
      group = std::prev(groups.end());
    }
    group->layers.push_back(static_cast<std::uint32_t>(i));
  }
  return groups;
}

std::vector<std::string> architecture_names(const ModelSpec& model) {
  std::vector<std::string> names;
  for (const LayerGroup& group : model.groups) {
    if (group.architecture.empty()) continue;
    if (std::find(names.begin(), names.end(), group.architecture) == names.end()) {
      names.push_back(group.architecture);
    }
  }
  return names;
}

std::vector<std::string_view> cache_type_names() {
  return {"auto", "f32",   "f16",   "bf16",       "fp8",  "fp8_e4m3", "fp8_e5m2",
          "q8_0", "q5_1",  "q5_0",  "q4_1",       "q4_0", "iq4_nl",   "int8",
          "int4", "nvfp4", "mxfp4", "fp8_ds_mla", "q8_KV"};
}

Result<ModelSpec> with_layer_types(ModelSpec model, const CacheTypes& types,
                                   std::span<const std::uint32_t> layers) {
  KVARTO_TRY(const Request request, parse_request(types));
  for (const std::uint32_t layer : layers) {
    if (group_of(model, layer) == nullptr) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("layer {}: found none of that number among {} layers", layer,
                              model.num_layers));
    }
  }
  std::vector<LayerGroup> groups;
  for (LayerGroup& group : model.groups) {
    LayerGroup chosen = group;
    std::erase_if(chosen.layers, [&](std::uint32_t layer) { return !contains(layers, layer); });
    std::erase_if(group.layers, [&](std::uint32_t layer) { return contains(layers, layer); });
    for (Stream& stream : chosen.streams) KVARTO_CHECK_OK(set_types(stream, request));
    if (!group.layers.empty()) groups.push_back(std::move(group));
    if (!chosen.layers.empty()) groups.push_back(std::move(chosen));
  }
  model.groups = std::move(groups);
  follow_owners(model);
  return model;
}

Result<ModelSpec> with_types(ModelSpec model, const CacheTypes& types) {
  KVARTO_TRY(const Request request, parse_request(types));
  for (auto* groups : {&model.groups, &model.draft_groups}) {
    for (LayerGroup& group : *groups) {
      for (Stream& stream : group.streams) KVARTO_CHECK_OK(set_types(stream, request));
    }
  }
  return model;
}

}  // namespace kvarto
