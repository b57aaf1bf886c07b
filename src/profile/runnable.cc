// Which layers a profile can run, and why not the others.

#include <fmt/format.h>

#include "kernels/dispatch.h"
#include "kvarto/profile.h"
#include "profile/profile_loop.h"

namespace kvarto {
namespace {

bool can_be_written(Codec codec) {
  return kernel_table(Isa::kScalar).encode[static_cast<std::size_t>(codec)] != nullptr;
}

Status refuse(const LayerGroup& group, const std::string& why) {
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("{}: {}; what runs now is K and V of the same heads, "
                  "or rows that are both, read in full, by a window or chunk or by an indexer",
                  group.architecture, why));
}

Status check_stream(const ModelSpec& model, const LayerGroup& group, const Stream& stream) {
  const auto no = [&](const std::string& what) {
    return refuse(group, fmt::format("stream \"{}\" {}", stream.name, what));
  };
  const bool is_both = serves_both(group);
  if (!is_both && stream.name != "k" && stream.name != "v") return no("cannot run yet");
  if (!is_both && stream.fields.size() != 1) return no("has rows of several fields");
  if (stream.owner_layer.has_value()) return no("is borrowed from another layer");
  if (stream.tokens_per_row != 1 || stream.birth_delay_tokens != 0 || !stream.born_from.empty()) {
    return no(stream.tokens_per_row != 1
                  ? fmt::format("has one row for {} tokens", stream.tokens_per_row)
                  : std::string("is not born with its token"));
  }
  const Lifetime::Kind life = stream.lifetime.kind;
  if (life != Lifetime::Kind::kNever && life != Lifetime::Kind::kWindow &&
      life != Lifetime::Kind::kChunk) {
    return no("has lifetime " + to_string(stream.lifetime));
  }
  const Access& access = stream.access;
  const LayerGroup* selecting = selecting_group(model, group);
  const bool is_picked = access.kind == Access::Kind::kTopK && is_both && selecting != nullptr &&
                         index_stream(*selecting) != nullptr && selecting->query.index_heads != 0;
  if (stream.selection_layer.has_value() && !is_picked) {
    return no(fmt::format("is read by the selection of layer {}, which has no indexer that runs",
                          *stream.selection_layer));
  }
  if ((access.kind != Access::Kind::kAll && access.kind != Access::Kind::kWindow && !is_picked) ||
      access.skip_tokens != 0 || access.align_rows != 1) {
    return no("is read by " + to_string(access));
  }
  for (const Field& field : stream.fields) {
    if (can_be_written(field.codec)) continue;
    return no(fmt::format("has type {}", codec_info(field.codec).name));
  }
  return {};
}

}  // namespace

Status check_runnable(const ModelSpec& model, const LayerGroup& group) {
  const LayerGroup* selecting = selecting_group(model, group);
  if (selecting != nullptr && selecting != &group) {
    KVARTO_CHECK_OK(check_runnable(model, *selecting));
  }
  if (serves_both(group)) {
    for (const Stream& stream : group.streams) KVARTO_CHECK_OK(check_stream(model, group, stream));
    return group.query.q_heads != 0 ? Status{} : refuse(group, "no query heads");
  }
  if (group.streams.size() != 2 || group.streams[0].name == group.streams[1].name) {
    for (const Stream& stream : group.streams) KVARTO_CHECK_OK(check_stream(model, group, stream));
    return refuse(group, fmt::format("{} streams", group.streams.size()));
  }
  for (const Stream& stream : group.streams) KVARTO_CHECK_OK(check_stream(model, group, stream));
  const Stream& a = group.streams[0];
  const Stream& b = group.streams[1];
  if (!(a.lifetime == b.lifetime) || !(a.access == b.access) ||
      a.fields.front().heads != b.fields.front().heads) {
    return refuse(group, "K and V of different heads, lifetime or access");
  }
  if (group.query.q_heads == 0 || group.query.q_heads % a.fields.front().heads != 0) {
    return refuse(group, fmt::format("{} query heads for {} KV heads", group.query.q_heads,
                                     a.fields.front().heads));
  }
  return {};
}

}  // namespace kvarto
