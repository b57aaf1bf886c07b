// kvarto inspect: what a model's cache consists of, layer group by layer group.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "kvarto/tracks.h"
#include "model_options.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Asked {
  ModelOptions model;
  std::optional<std::uint64_t> block_size;
  bool is_json = false;
};

const char* shard_name(Shard shard) { return shard == Shard::kHead ? "head" : "replicate"; }

Json stream_json(const Stream& stream) {
  Json fields = Json::array();
  for (const Field& field : stream.fields) {
    fields.push_back({{"name", field.name},
                      {"heads", field.heads},
                      {"width", field.width},
                      {"codec", codec_info(field.codec).name}});
  }
  const RowBytes row = row_bytes(stream);
  Json json = {{"name", stream.name},
               {"fields", fields},
               {"row_bytes", row.total()},
               {"tokens_per_row", stream.tokens_per_row},
               {"lifetime", to_string(stream.lifetime)},
               {"access", to_string(stream.access)},
               {"truncate", to_string(stream.truncate)},
               {"shard", shard_name(stream.shard)},
               {"payload_bytes", row.payload},
               {"scale_bytes", row.scales},
               {"padding_bytes", row.padding}};
  if (!stream.born_from.empty()) json["born_from"] = stream.born_from;
  if (stream.owner_layer.has_value()) json["owner_layer"] = *stream.owner_layer;
  if (stream.selection_layer.has_value()) json["selection_layer"] = *stream.selection_layer;
  return json;
}

Json groups_json(const std::vector<LayerGroup>& groups) {
  Json list = Json::array();
  for (const LayerGroup& group : groups) {
    Json streams = Json::array();
    for (const Stream& stream : group.streams) streams.push_back(stream_json(stream));
    list.push_back(
        {{"architecture", group.architecture}, {"layers", group.layers}, {"streams", streams}});
  }
  return list;
}

Json tracks_json(const ModelSpec& model, const std::vector<Track>& tracks) {
  Json list = Json::array();
  for (const Track& track : tracks) {
    Json streams = Json::array();
    for (const TrackStream& part : track.streams) {
      streams.push_back({{"name", model.groups[part.group].streams[part.stream].name},
                         {"layers", part.layers},
                         {"slice_bytes", part.slice_bytes()}});
    }
    list.push_back({{"lifetime", to_string(track.lifetime)},
                    {"tokens_per_row", track.tokens_per_row},
                    {"rows_per_block", track.rows_per_block},
                    {"block_bytes", track.block_bytes},
                    {"streams", streams}});
  }
  return list;
}

void print_json(const ModelSpec& model, const std::vector<Track>& tracks, Output& out) {
  const Json json = {{"schema", "kvarto.inspect/1"},
                     {"model",
                      {{"name", model.name},
                       {"model_type", model.model_type},
                       {"architectures", architecture_names(model)},
                       {"layers", model.num_layers},
                       {"max_context", model.max_context}}},
                     {"layer_groups", groups_json(model.groups)},
                     {"draft_layer_groups", groups_json(model.draft_groups)},
                     {"tracks", tracks_json(model, tracks)},
                     {"share_unit_tokens", share_unit_tokens(tracks)},
                     {"notes", model.notes}};
  out.verbatim(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

// "0-3, 5, 7-9"
std::string layer_ranges(const std::vector<std::uint32_t>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += end == i ? fmt::format("{}", layers[i]) : fmt::format("{}-{}", layers[i], layers[end]);
    i = end + 1;
  }
  return text;
}

// "0, 2, 4, ... (21 layers)" where ranges would fill the screen.
std::string short_layers(const std::vector<std::uint32_t>& layers) {
  constexpr std::size_t kMaxCharacters = 60;
  std::string text = layer_ranges(layers);
  if (text.size() > kMaxCharacters) {
    text.resize(text.rfind(',', kMaxCharacters));
    text += ", ...";
  }
  return fmt::format("{} {} ({})", layers.size() == 1 ? "layer" : "layers", text, layers.size());
}

std::string fields_text(const Stream& stream) {
  std::vector<std::string> parts;
  for (const Field& field : stream.fields) {
    const std::string shape = field.heads == 1 ? fmt::format("{}", field.width)
                                               : fmt::format("{} x {}", field.heads, field.width);
    const std::string name = field.name == stream.name ? "" : field.name + " ";
    parts.push_back(fmt::format("{}{} {}", name, shape, codec_info(field.codec).name));
  }
  return fmt::format("{}", fmt::join(parts, " + "));
}

std::string origin_text(const Stream& stream) {
  std::vector<std::string> parts;
  if (!stream.born_from.empty()) parts.push_back("from " + stream.born_from);
  if (stream.owner_layer.has_value()) {
    parts.push_back(fmt::format("rows of layer {}", *stream.owner_layer));
  }
  if (stream.selection_layer.has_value()) {
    parts.push_back(fmt::format("selection of layer {}", *stream.selection_layer));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

void print_group(const LayerGroup& group, Output& out) {
  out.line();
  out.heading(fmt::format("{}: {}", short_layers(group.layers), group.architecture));
  if (group.streams.empty()) return out.line("  caches nothing");
  constexpr auto kLeft = Table::Align::kLeft;
  Table table({{"stream", kLeft},
               {"fields of a row", kLeft},
               {"row bytes"},
               {"tokens a row"},
               {"lifetime", kLeft},
               {"read", kLeft},
               {"truncate", kLeft},
               {"shard", kLeft},
               {"", kLeft}});
  for (const Stream& stream : group.streams) {
    table.row({stream.name, fields_text(stream), grouped(row_bytes(stream).total()),
               grouped(stream.tokens_per_row), to_string(stream.lifetime), to_string(stream.access),
               to_string(stream.truncate), shard_name(stream.shard), origin_text(stream)});
  }
  table.print(out);
}

void print_tracks(const ModelSpec& model, const std::vector<Track>& tracks, Output& out) {
  out.line();
  out.heading("tracks: streams that share one block table");
  constexpr auto kLeft = Table::Align::kLeft;
  Table table(
      {{"lifetime", kLeft}, {"tokens a block"}, {"block bytes"}, {"streams (layers)", kLeft}});
  for (const Track& track : tracks) {
    std::vector<std::string> streams;
    for (const TrackStream& part : track.streams) {
      streams.push_back(
          fmt::format("{} ({})", model.groups[part.group].streams[part.stream].name, part.layers));
    }
    const bool is_constant = track.lifetime.kind == Lifetime::Kind::kConstant;
    table.row({to_string(track.lifetime), is_constant ? "-" : grouped(track.tokens_per_block()),
               grouped(track.block_bytes), fmt::format("{}", fmt::join(streams, ", "))});
  }
  table.print(out);
  out.line(fmt::format("  prefixes are shared in units of {} tokens",
                       grouped(share_unit_tokens(tracks))));
}

void print_human(const ModelSpec& model, const std::vector<Track>& tracks, Output& out) {
  out.heading(fmt::format("{}: {} layers, {}", model.name, model.num_layers,
                          fmt::join(architecture_names(model), " + ")));
  if (model.max_context > 0) {
    out.line(
        fmt::format("  type {}, at most {} tokens", model.model_type, grouped(model.max_context)));
  }
  for (const std::string& note : model.notes) out.note(note);
  for (const LayerGroup& group : model.groups) print_group(group, out);
  if (!model.draft_groups.empty()) {
    out.line();
    out.heading("draft layers, cached only by engines that run them");
    for (const LayerGroup& group : model.draft_groups) print_group(group, out);
  }
  if (!tracks.empty()) print_tracks(model, tracks, out);
}

Result<ExitCode> run(const Asked& asked, Output& out) {
  KVARTO_TRY(ModelSpec opened, open_asked(asked.model));
  KVARTO_CHECK_OK(check_latent_options(asked.model, opened));
  KVARTO_TRY(const std::vector<LayerTypes> by_layer, layer_types(asked.model));
  KVARTO_TRY(const ModelSpec model,
             with_types(std::move(opened), cache_types(asked.model), by_layer));
  KVARTO_TRY(const std::vector<Track> tracks,
             make_tracks(model, asked.block_size.value_or(kDefaultBlockSize)));
  if (asked.is_json) {
    print_json(model, tracks, out);
  } else {
    print_human(model, tracks, out);
  }
  return ExitCode::kDone;
}

Runner declare(OptionSet& options) {
  auto asked = std::make_shared<Asked>();
  declare_model(options, &asked->model, TypeUse::kPlanned);
  options.section("output");
  options.count("--block-size,--page-size", 1, &asked->block_size,
                "tokens a block, for the tracks (default 16)");
  options.flag("--json", &asked->is_json, "one JSON document on standard output");
  return [asked](Output& out) { return run(*asked, out); };
}

}  // namespace

const Command kInspectCommand{"inspect", "MODEL [options]",
                              "what the cache of a model consists of, stream by stream", declare};

}  // namespace kvarto::cli
