#include "formats/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/checked.h"
#include "formats/gguf_frame.h"
#include "formats/gguf_keys.h"
#include "formats/tensor_geometry.h"

namespace kvarto {
namespace {

using Place = GgufStateRule::Place;

constexpr std::int64_t kMaxDrafts = 64;

// How many of the blocks are the model's own layers. The file counts the blocks that predict
// further tokens among them, but not every converter wrote those blocks' tensors.
Result<std::uint32_t> read_num_layers(GgufFrame& frame) {
  constexpr std::string_view kKey = "nextn_predict_layers";
  KVARTO_TRY(const auto drafts, frame.keys.integer({kKey}, 0, kMaxDrafts));
  if (drafts.value_or(0) == 0) return frame.num_blocks;
  if (*drafts >= static_cast<std::int64_t>(frame.num_blocks)) {
    return frame.keys.bad(kKey, fmt::format("{}", *drafts),
                          fmt::format("fewer than block_count {}", frame.num_blocks));
  }
  const std::uint32_t num_layers = frame.num_blocks - to_u32(*drafts);
  if (frame.tensors->empty() || frame.tensors->has_in_block(num_layers, "nextn.")) {
    return num_layers;
  }
  if (frame.tensors->has_in_block(num_layers, "")) {
    frame.notes.push_back(
        fmt::format("{}: block {} has no tensors for prediction, took it for a layer of the model",
                    kKey, num_layers));
    return frame.num_blocks;
  }
  frame.notes.push_back(
      fmt::format("{}: the file holds none of the {} prediction blocks", kKey, *drafts));
  frame.num_blocks = num_layers;
  return num_layers;
}

Result<GgufFrame> read_frame(const GgufModelKeys& model, const GgufTensorNames& tensors,
                             std::string_view where) {
  GgufFrame frame{.keys = Keys(model.values, std::string(where), model.architecture + "."),
                  .rule = {},
                  .tensors = &tensors,
                  .heads = {},
                  .kv_heads = {},
                  .notes = {}};
  const GgufArchitecture* rule = gguf_architecture(model.architecture);
  if (rule != nullptr) {
    frame.rule = *rule;
  } else {
    frame.rule.model_type = model.architecture;
    frame.rule.state.place = Place::kNoHeads;
    frame.notes.push_back(fmt::format(
        "general.architecture: \"{}\" is unknown, read by its keys alone: K and V in every layer "
        "with KV heads, a state by the ssm, kda, shortconv or wkv keys in the others",
        model.architecture));
  }
  KVARTO_TRY(const auto blocks, frame.keys.required_integer({"block_count"}, 1, kMaxLayers));
  KVARTO_TRY(const auto hidden, frame.keys.integer({"embedding_length"}, 1, kMaxWidth));
  frame.num_blocks = to_u32(blocks);
  frame.num_layers = frame.num_blocks;
  frame.hidden_size = hidden.value_or(0);
  KVARTO_TRY(frame.num_layers, read_num_layers(frame));
  KVARTO_TRY(frame.heads, read_per_block(frame, "attention.head_count", kMaxHeads, 0));
  frame.kv_heads = frame.heads;
  if (frame.keys.has("attention.head_count_kv")) {
    KVARTO_TRY(frame.kv_heads, read_per_block(frame, "attention.head_count_kv", kMaxHeads, 0));
  }
  return frame;
}

// Which blocks have a recurrent state, in place of attention or beside it.
Result<std::vector<bool>> read_stateful(GgufFrame& frame) {
  std::vector<bool> is_stateful(frame.num_blocks, false);
  const Place place = frame.rule.state.place;
  if (place == Place::kEvery || place == Place::kBeside) {
    is_stateful.assign(frame.num_blocks, true);
  } else if (frame.keys.has("attention.recurrent_layers")) {
    KVARTO_TRY(const auto listed, read_per_block(frame, "attention.recurrent_layers", 1, 0));
    for (std::uint32_t i = 0; i < frame.num_layers; ++i) is_stateful[i] = listed[i] != 0;
  } else if (place == Place::kInterval) {
    // llama.cpp's loaders take 4 where the key is absent.
    KVARTO_TRY(const auto interval, frame.keys.integer({"full_attention_interval"}, 1, kMaxLayers));
    const auto every = to_u32(interval.value_or(4));
    for (std::uint32_t i = 0; i < frame.num_layers; ++i) is_stateful[i] = (i + 1) % every != 0;
  } else if (place != Place::kNowhere) {
    KVARTO_TRY(const auto mlp, read_per_block(frame, "feed_forward_length", INT32_MAX, 0));
    for (std::uint32_t i = 0; i < frame.num_blocks; ++i) {
      is_stateful[i] = frame.kv_heads[i] == 0 && (place != Place::kAlone || mlp[i] == 0);
    }
  }
  if (place == Place::kBeside) return is_stateful;
  for (std::uint32_t i = 0; i < frame.num_blocks; ++i) {
    if (is_stateful[i]) frame.kv_heads[i] = 0;
  }
  return is_stateful;
}

// A block with neither attention nor state must be one of an architecture that has such.
Status check_empty(const GgufFrame& frame, const std::vector<bool>& is_stateful) {
  if (frame.rule.has_empty_layers || frame.rule.state.place == Place::kAlone) return {};
  for (std::uint32_t i = 0; i < frame.num_blocks; ++i) {
    if (frame.kv_heads[i] != 0 || is_stateful[i]) continue;
    const bool is_stated = frame.keys.has("attention.head_count");
    if (!is_stated) return frame.keys.missing("attention.head_count", "an integer");
    return frame.keys.bad("attention.head_count_kv", fmt::format("0 in block {}", i),
                          "at least 1 in this architecture");
  }
  return {};
}

Result<std::vector<LayerSpec>> read_blocks(GgufFrame& frame) {
  std::vector<LayerSpec> blocks(frame.num_blocks,
                                {.architecture = "none", .query = {}, .streams = {}});
  KVARTO_TRY(const auto is_stateful, read_stateful(frame));
  KVARTO_CHECK_OK(check_empty(frame, is_stateful));
  const auto has_heads = [](std::int64_t heads) { return heads != 0; };
  if (std::any_of(frame.kv_heads.begin(), frame.kv_heads.end(), has_heads)) {
    KVARTO_CHECK_OK(read_gguf_attention(frame, blocks));
  }
  if (std::find(is_stateful.begin(), is_stateful.end(), true) == is_stateful.end()) return blocks;
  KVARTO_TRY(const LayerSpec state, read_gguf_state(frame));
  for (std::uint32_t i = 0; i < frame.num_blocks; ++i) {
    if (!is_stateful[i]) continue;
    LayerSpec& block = blocks[i];
    if (frame.kv_heads[i] == 0) {
      block = state;
    } else {
      block.architecture += "+" + state.architecture;
      block.streams.insert(block.streams.end(), state.streams.begin(), state.streams.end());
    }
  }
  return blocks;
}

Result<std::uint32_t> read_vocab_size(const GgufFrame& frame, std::uint64_t num_tokens) {
  KVARTO_TRY(const auto stated, frame.keys.integer({"vocab_size"}, 0, std::int64_t{UINT32_MAX}));
  if (stated) return to_u32(*stated);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(num_tokens, UINT32_MAX));
}

Result<ModelSpec> build_spec(GgufFrame& frame, std::uint64_t num_tokens) {
  ModelSpec spec;
  spec.model_type = std::string(frame.rule.model_type);
  spec.is_unknown_type = frame.rule.name.empty();
  KVARTO_TRY(const auto context, frame.keys.integer({"context_length"}, 0, kMaxTokens));
  spec.max_context = static_cast<std::uint64_t>(context.value_or(0));
  spec.hidden_size = to_u32(frame.hidden_size);
  KVARTO_TRY(spec.vocab_size, read_vocab_size(frame, num_tokens));
  KVARTO_TRY(auto blocks, read_blocks(frame));
  spec.num_layers = frame.num_layers;
  const auto first_draft = blocks.begin() + frame.num_layers;
  spec.groups = group_layers({blocks.begin(), first_draft});
  spec.draft_groups = group_layers({first_draft, blocks.end()});
  for (LayerGroup& group : spec.draft_groups) {
    for (std::uint32_t& layer : group.layers) layer += spec.num_layers;
  }
  spec.notes = std::move(frame.notes);
  return spec;
}

Status check_tensors(std::span<const GgufHeader* const> parts, std::string_view where,
                     ModelSpec& spec) {
  const LayerLookup layers(spec);
  CheckedSum weights;
  for (const GgufHeader* part : parts) {
    for (const GgufTensor& tensor : part->tensors) {
      weights.add(tensor.bytes);
      const TensorShape shape{.name = tensor.name,
                              .rows = tensor.dims[1],
                              .columns = tensor.dims[0],
                              .num_dims = tensor.num_dims};
      KVARTO_CHECK_OK(check_tensor(shape, layers, where));
    }
  }
  // Each part's tensors lie apart within a file, so that only thousands of parts could overflow.
  spec.weight_bytes = weights.has_overflow() ? 0 : weights.total();
  return {};
}

// "models/llama-00001-of-00002.gguf" is known as "llama".
std::string name_of(const std::string& path) {
  std::string stem = std::filesystem::path(path).stem().string();
  constexpr std::string_view kPart = "-00001-of-00001";
  if (stem.size() > kPart.size() && stem.compare(stem.size() - 9, 4, "-of-") == 0) {
    stem.resize(stem.size() - kPart.size());
  }
  return stem;
}

}  // namespace

Result<ModelSpec> read_gguf_model(std::span<const GgufHeader* const> parts,
                                  std::string_view where) {
  KVARTO_TRY(const GgufModelKeys model, read_gguf_keys(*parts.front(), where));
  if (is_gguf_encoder(model.architecture)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: general.architecture: found \"{}\", expected a model that "
                            "generates: this one keeps no cache",
                            where, model.architecture));
  }
  if (model.architecture.starts_with("deepseek4") && model.architecture != "deepseek4") {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: general.architecture: found \"{}\", expected \"deepseek4\": newer "
                            "models of this kind have no agreed keys in GGUF; plan from their "
                            "config.json",
                            where, model.architecture));
  }
  const GgufTensorNames tensors(parts);
  KVARTO_TRY(GgufFrame frame, read_frame(model, tensors, where));
  KVARTO_TRY(ModelSpec spec, build_spec(frame, model.num_tokens));
  KVARTO_CHECK_OK(check_tensors(parts, where, spec));
  return spec;
}

Result<ModelSpec> open_gguf_model(const std::string& path) {
  KVARTO_TRY(const GgufFile file, open_gguf(path));
  std::vector<const GgufHeader*> headers;
  for (const GgufPart& part : file.parts) headers.push_back(&part.header);
  KVARTO_TRY(ModelSpec spec, read_gguf_model(headers, path));
  spec.name = name_of(path);
  return spec;
}

}  // namespace kvarto
