#include "cache/model_check.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace kvarto {
namespace {

Status check_stream(const LayerGroup& group, const Stream& stream) {
  const auto bad = [&](std::string_view what) -> Status {
    return fail(ErrorCode::kInvalidArgument, fmt::format("model: {} layer, stream {}: {}",
                                                         group.architecture, stream.name, what));
  };
  if (stream.fields.empty()) return bad("no fields, expected at least 1");
  if (stream.tokens_per_row == 0) return bad("0 tokens per row, expected at least 1");
  for (const Field& field : stream.fields) {
    if (static_cast<int>(field.codec) >= kNumCodecs) {
      return bad(fmt::format("field {}: codec {}, expected one of Codec", field.name,
                             static_cast<unsigned>(field.codec)));
    }
    if (field.heads == 0 || field.width == 0) {
      return bad(fmt::format("field {} of {} x {} elements, expected at least 1 x 1", field.name,
                             field.heads, field.width));
    }
  }
  const Lifetime::Kind kind = stream.lifetime.kind;
  const bool needs_tokens = kind == Lifetime::Kind::kWindow || kind == Lifetime::Kind::kChunk ||
                            kind == Lifetime::Kind::kTtl || kind == Lifetime::Kind::kKept;
  if (needs_tokens && stream.lifetime.tokens == 0) {
    return bad(fmt::format("lifetime {}, expected at least 1 token", to_string(stream.lifetime)));
  }
  if (stream.truncate.kind == Truncate::Kind::kBoundary && stream.truncate.tokens == 0) {
    return bad("truncate boundary(0), expected at least 1 token");
  }
  if (stream.block_align_bytes == 0) return bad("block alignment 0, expected at least 1 byte");
  return {};
}

// Names are told apart and layers are in one group each; owners have what others borrow.
Status check_names(const ModelSpec& model) {
  std::map<std::uint32_t, std::set<std::string>> streams_of;
  for (const LayerGroup& group : model.groups) {
    std::set<std::string> names;
    for (const Stream& stream : group.streams) {
      if (names.insert(stream.name).second) continue;
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("model: {} layer: two streams named {}, expected names told apart",
                              group.architecture, stream.name));
    }
    for (const std::uint32_t layer : group.layers) {
      if (streams_of.emplace(layer, names).second) continue;
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("model: layer {} is named twice, expected once", layer));
    }
  }
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) {
      if (!stream.owner_layer.has_value()) continue;
      const auto owner = streams_of.find(*stream.owner_layer);
      if (owner != streams_of.end() && owner->second.count(stream.name) != 0) continue;
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("model: {} layer, stream {}: owner layer {}, expected one with a "
                              "stream of that name",
                              group.architecture, stream.name, *stream.owner_layer));
    }
  }
  return {};
}

}  // namespace

Status check_model(const ModelSpec& model) {
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) KVARTO_CHECK_OK(check_stream(group, stream));
  }
  return check_names(model);
}

}  // namespace kvarto
