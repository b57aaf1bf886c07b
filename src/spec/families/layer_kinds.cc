// Which layers of a model have a window or a chunk.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "spec/families/dense_keys.h"

namespace kvarto {
namespace {

using Kind = WindowRule::Kind;

LayerKind full_if(bool is_full) { return is_full ? LayerKind::kFull : LayerKind::kSliding; }

std::optional<LayerKind> kind_of(std::string_view word) {
  if (word == "full_attention" || word == "attention" || word == "global") return LayerKind::kFull;
  if (word == "sliding_attention" || word == "sliding_window_attention" || word == "local") {
    return LayerKind::kSliding;
  }
  if (word == "chunked_attention") return LayerKind::kChunked;
  return std::nullopt;
}

bool has_sliding(const LayerKinds& kinds) {
  return std::find(kinds.kinds.begin(), kinds.kinds.end(), LayerKind::kSliding) !=
         kinds.kinds.end();
}

LayerKinds all_layers(std::int64_t num_layers, LayerKind kind, std::uint64_t window) {
  return {std::vector<LayerKind>(static_cast<std::size_t>(num_layers), kind), {}, window};
}

LayerKinds layers_where(std::int64_t num_layers, std::uint64_t window,
                        const std::function<bool(std::int64_t)>& is_full) {
  LayerKinds out = all_layers(num_layers, LayerKind::kFull, window);
  for (std::int64_t i = 0; i < num_layers; ++i) {
    out.kinds[static_cast<std::size_t>(i)] = full_if(is_full(i));
  }
  return out;
}

// "LLLG": one letter a layer, repeated; L is local, G global (EXAONE 4).
Result<LayerKinds> letters(const Keys& keys, std::string_view key, const std::string& pattern,
                           LayerKinds out) {
  if (pattern.empty() || pattern.find_first_not_of("LG") != std::string::npos) {
    return keys.bad(key, fmt::format("\"{}\"", pattern.substr(0, 40)),
                    "letters L (local) and G (global)");
  }
  for (std::size_t i = 0; i < out.kinds.size(); ++i) {
    out.kinds[i] = full_if(pattern[i % pattern.size()] == 'G');
  }
  return out;
}

Result<LayerKinds> by_pattern(ClassKeys& read, const DenseType& type, std::int64_t num_layers) {
  const Keys& keys = read.keys();
  KVARTO_TRY(const std::uint64_t window, read_window(read, type.windows.window));
  if (window == 0) return all_layers(num_layers, LayerKind::kFull, 0);
  for (const std::string_view key :
       {"sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"}) {
    const Value* value = keys.find(key);
    if (value == nullptr) continue;
    if (const auto* text = std::get_if<std::string>(&value->data)) {
      return letters(keys, key, *text, all_layers(num_layers, LayerKind::kFull, window));
    }
    KVARTO_TRY(const std::int64_t n, read.count({key}, 0, kMaxLayers));
    return layers_where(num_layers, window, [n](std::int64_t i) { return (i + 1) % n == 0; });
  }
  const std::int64_t n = type.windows.pattern;
  read.note(
      fmt::format("layer_types and sliding_window_pattern: absent, took one full layer in "
                  "every {}, the default of {}",
                  n, type.config_class));
  return layers_where(num_layers, window, [n](std::int64_t i) { return (i + 1) % n == 0; });
}

// Qwen2 and SmolLM3: windows only where `use_sliding_window` asks for them.
Result<LayerKinds> by_request(ClassKeys& read, const DenseType& type, std::int64_t num_layers) {
  const Keys& keys = read.keys();
  KVARTO_TRY(const auto wanted, keys.boolean("use_sliding_window"));
  // dots1 has windows without the flag.
  const bool is_wanted = wanted.value_or(type.model_type == "dots1");
  if (!is_wanted) return all_layers(num_layers, LayerKind::kFull, 0);
  KVARTO_TRY(const std::uint64_t window, read_window(read, type.windows.window));
  if (window == 0) return all_layers(num_layers, LayerKind::kFull, 0);
  if (type.windows.kind == Kind::kIfUsed) {
    return all_layers(num_layers, LayerKind::kSliding, window);
  }
  if (type.windows.kind == Kind::kNoRope) {
    KVARTO_TRY(const auto has_rope, keys.integers("no_rope_layers", 0, 1));
    KVARTO_TRY(const auto interval, keys.integer({"no_rope_layer_interval"}, 1, kMaxLayers));
    if (has_rope && has_rope->size() != static_cast<std::size_t>(num_layers)) {
      return keys.bad("no_rope_layers", fmt::format("a list of {}", has_rope->size()),
                      fmt::format("one entry for each of {} layers", num_layers));
    }
    const std::int64_t n = interval.value_or(4);
    return layers_where(num_layers, window, [&](std::int64_t i) {
      return has_rope ? (*has_rope)[static_cast<std::size_t>(i)] != 0 : (i + 1) % n != 0;
    });
  }
  KVARTO_TRY(const auto stated, keys.integer({"max_window_layers"}, 0, kMaxLayers));
  if (!stated) {
    read.note_default("max_window_layers", fmt::format("{}", type.windows.pattern));
  }
  const std::int64_t first = stated.value_or(type.windows.pattern);
  return layers_where(num_layers, window, [first](std::int64_t i) { return i < first; });
}

Result<LayerKinds> by_rule(ClassKeys& read, const DenseType& type, const ClassKeys::Frame& frame) {
  const std::int64_t num_layers = frame.num_layers;
  const auto max_context = static_cast<std::uint64_t>(frame.max_context);
  const WindowRule& rule = type.windows;
  switch (rule.kind) {
    case Kind::kNone: {
      KVARTO_TRY(const auto unused, read.optional_count({"sliding_window"}, kMaxTokens));
      if (unused != 0 && rule.window == 0) {
        read.note(
            fmt::format("sliding_window: found {}, but model type {} has no windows: all "
                        "layers are full",
                        unused, type.model_type));
      }
      return all_layers(num_layers, LayerKind::kFull, 0);
    }
    case Kind::kEvery: {
      KVARTO_TRY(std::uint64_t window, read_window(read, rule.window));
      // Phi-3-mini-128k: a window that no sequence of the model can fill is none.
      if (window != 0 && window >= max_context && max_context != 0) {
        read.note(
            fmt::format("sliding_window: {} is not below the context of {}: all layers are "
                        "full",
                        window, max_context));
        window = 0;
      }
      return all_layers(num_layers, window != 0 ? LayerKind::kSliding : LayerKind::kFull, window);
    }
    case Kind::kPattern:
      return by_pattern(read, type, num_layers);
    case Kind::kFirstFull:
    case Kind::kLastFull: {
      KVARTO_TRY(const std::uint64_t window, read_window(read, rule.window));
      if (window == 0) return all_layers(num_layers, LayerKind::kFull, 0);
      const std::int64_t from = rule.kind == Kind::kFirstFull ? 0 : num_layers - 1;
      return layers_where(num_layers, window,
                          [&](std::int64_t i) { return (i - from) % rule.pattern == 0; });
    }
    case Kind::kFromLayer:
    case Kind::kIfUsed:
    case Kind::kNoRope:
      return by_request(read, type, num_layers);
  }
  return all_layers(num_layers, LayerKind::kFull, 0);
}

}  // namespace

Result<std::uint64_t> read_window(ClassKeys& read, std::int64_t class_default) {
  const Keys& keys = read.keys();
  if (keys.is_null("sliding_window")) return std::uint64_t{0};
  KVARTO_TRY(const std::int64_t stated, read.optional_count({"sliding_window"}, kMaxTokens));
  if (stated != 0) return static_cast<std::uint64_t>(stated);
  if (class_default != 0) read.note_default("sliding_window", fmt::format("{}", class_default));
  return static_cast<std::uint64_t>(class_default);
}

Result<LayerKinds> read_layer_types(ClassKeys& read, std::int64_t num_layers) {
  const Keys& keys = read.keys();
  KVARTO_TRY(const auto words, keys.strings("layer_types"));
  LayerKinds out;
  if (!words) return out;
  KVARTO_TRY(const std::int64_t num_drafts, read_num_drafts(keys));
  const auto stated = static_cast<std::int64_t>(words->size());
  if (stated != num_layers && stated != num_layers + num_drafts) {
    return keys.bad("layer_types", fmt::format("a list of {}", stated),
                    fmt::format("one entry for each of {} layers", num_layers));
  }
  for (std::int64_t i = 0; i < stated; ++i) {
    const std::string& word = (*words)[static_cast<std::size_t>(i)];
    const auto kind = kind_of(word);
    if (!kind) {
      return keys.bad(fmt::format("layer_types[{}]", i), fmt::format("\"{}\"", word.substr(0, 40)),
                      "full_attention, sliding_attention or chunked_attention");
    }
    (i < num_layers ? out.kinds : out.drafts).push_back(*kind);
  }
  return out;
}

Result<LayerKinds> read_layer_kinds(ClassKeys& read, const DenseType& type,
                                    const ClassKeys::Frame& frame) {
  const Keys& keys = read.keys();
  KVARTO_TRY(LayerKinds listed, read_layer_types(read, frame.num_layers));
  if (listed.kinds.empty()) return by_rule(read, type, frame);
  if (!has_sliding(listed)) return listed;
  KVARTO_TRY(const auto is_used, keys.boolean("use_sliding_window"));
  if (is_used && !*is_used) {
    return keys.bad("layer_types", "sliding_attention", "none while use_sliding_window is false");
  }
  KVARTO_TRY(listed.window, read_window(read, type.windows.window));
  if (listed.window == 0) {
    return keys.missing("sliding_window", "the window of the sliding layers of layer_types");
  }
  return listed;
}

}  // namespace kvarto
