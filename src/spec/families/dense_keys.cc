#include "spec/families/dense_keys.h"

#include <fmt/format.h>

namespace kvarto {
namespace {

using Names = std::initializer_list<std::string_view>;

// Several names of one number must agree, whichever is read.
Status check_agreement(const Keys& keys, Names names, std::int64_t max) {
  std::string_view first_name;
  std::int64_t first = 0;
  for (const std::string_view name : names) {
    KVARTO_TRY(const auto number, keys.integer({name}, 1, max));
    if (!number) continue;
    if (first_name.empty()) {
      first_name = name;
      first = *number;
    } else if (*number != first) {
      return keys.bad(name, fmt::format("{}", *number),
                      fmt::format("{}, as {} says", first, first_name));
    }
  }
  return {};
}

const Names kLayers = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"};
const Names kHidden = {"hidden_size", "n_embed", "n_embd", "d_model"};
const Names kHeads = {"num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"};
const Names kKvHeads = {"num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups"};
const Names kHeadDim = {"head_dim", "kv_channels", "attention_head_dim"};
const Names kContext = {"max_position_embeddings", "n_positions", "max_seq_len",
                        "max_sequence_length",     "seq_length",  "n_ctx"};

Result<std::int64_t> read_kv_heads(ClassKeys& read, const DenseType& type, std::int64_t heads) {
  const Keys& keys = read.keys();
  KVARTO_CHECK_OK(check_agreement(keys, kKvHeads, kMaxHeads));
  KVARTO_TRY(std::int64_t kv_heads, read.optional_count(kKvHeads, kMaxHeads));
  const bool is_null = keys.is_null("num_key_value_heads");
  if (kv_heads == 0 && type.kv_heads > 0 && !is_null) {
    kv_heads = type.kv_heads;
    read.note_default("num_key_value_heads", fmt::format("{}", kv_heads));
  } else if (kv_heads == 0) {
    kv_heads = heads;
    if (type.kv_heads != kOneForEach) {
      read.note(fmt::format("num_key_value_heads: {}, took {}, one for each query head",
                            is_null ? "null" : "absent", heads));
    }
  }
  if (heads % kv_heads != 0) {
    return keys.bad("num_key_value_heads", fmt::format("{}", kv_heads),
                    fmt::format("a divisor of the {} query heads", heads));
  }
  return kv_heads;
}

Result<std::int64_t> read_head_dim(ClassKeys& read, const DenseType& type, std::int64_t hidden_size,
                                   std::int64_t heads) {
  const Keys& keys = read.keys();
  KVARTO_TRY(const std::int64_t stated, read.optional_count(kHeadDim, kMaxWidth));
  if (stated != 0) return stated;
  if (type.head_dim != kDerived && !keys.is_null("head_dim")) {
    read.note_default("head_dim", fmt::format("{}", type.head_dim));
    return type.head_dim;
  }
  if (hidden_size == 0) return keys.missing("head_dim", "it, or hidden_size to derive it from");
  if (hidden_size % heads != 0) {
    return keys.bad(
        "hidden_size", fmt::format("{}", hidden_size),
        fmt::format("a multiple of the {} query heads where head_dim is absent", heads));
  }
  return hidden_size / heads;
}

}  // namespace

Result<ClassKeys::Frame> read_frame(ClassKeys& read, const DenseType& type) {
  const Keys& keys = read.keys();
  KVARTO_CHECK_OK(check_agreement(keys, kLayers, kMaxLayers));
  KVARTO_CHECK_OK(check_agreement(keys, kHidden, kMaxWidth));
  ClassKeys::Frame frame;
  KVARTO_TRY(frame.num_layers, read.count(kLayers, type.layers, kMaxLayers));
  // Without a class the hidden size may be absent: it only serves to derive the head dim.
  if (type.hidden == 0) {
    KVARTO_TRY(frame.hidden_size, read.optional_count(kHidden, kMaxWidth));
  } else {
    KVARTO_TRY(frame.hidden_size, read.count(kHidden, type.hidden, kMaxWidth));
  }
  KVARTO_TRY(frame.max_context, read.optional_count(kContext, kMaxTokens));
  if (frame.max_context == 0 && type.max_context != 0) {
    frame.max_context = type.max_context;
    read.note_default("max_position_embeddings", fmt::format("{}", type.max_context));
  }
  return frame;
}

Result<DenseShape> read_heads(ClassKeys& read, const DenseType& type, std::int64_t hidden_size) {
  const Keys& keys = read.keys();
  KVARTO_CHECK_OK(check_agreement(keys, kHeads, kMaxHeads));
  KVARTO_TRY(const std::int64_t heads, read.count(kHeads, type.heads, kMaxHeads));
  KVARTO_TRY(const std::int64_t kv_heads, read_kv_heads(read, type, heads));
  KVARTO_TRY(const std::int64_t head_dim, read_head_dim(read, type, hidden_size, heads));
  KVARTO_TRY(const std::int64_t v_head_dim, read.optional_count({"v_head_dim"}, kMaxWidth));
  DenseShape shape;
  shape.q_heads = static_cast<std::uint32_t>(heads);
  shape.kv_heads = static_cast<std::uint32_t>(kv_heads);
  shape.qk_dim = static_cast<std::uint32_t>(head_dim);
  shape.v_dim = static_cast<std::uint32_t>(v_head_dim != 0 ? v_head_dim : head_dim);
  return shape;
}

Result<DenseGeometry> read_dense_geometry(ClassKeys& read, const DenseType& type) {
  KVARTO_TRY(const ClassKeys::Frame frame, read_frame(read, type));
  KVARTO_TRY(const DenseShape shape, read_heads(read, type, frame.hidden_size));
  return DenseGeometry{frame, shape};
}

Result<std::int64_t> read_num_drafts(const Keys& keys) {
  KVARTO_TRY(const auto drafts,
             keys.integer({"num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"},
                          0, kMaxLayers));
  if (drafts) return *drafts;
  // MiniMax-M2 counts modules of several layers each.
  KVARTO_TRY(const auto is_used, keys.boolean("use_mtp"));
  KVARTO_TRY(const auto modules, keys.integer({"num_mtp_modules"}, 0, 64));
  KVARTO_TRY(const auto module_layers, keys.integer({"mtp_transformer_layers"}, 0, 64));
  return is_used.value_or(false) ? modules.value_or(0) * module_layers.value_or(1) : 0;
}

}  // namespace kvarto
