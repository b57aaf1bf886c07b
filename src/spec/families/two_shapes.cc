// Families whose windowed layers have other heads than the full ones: MiMo-V2-Flash and Step-3.5
// and 3.7.

#include <fmt/format.h>

#include "spec/families/all.h"
#include "spec/families/dense_keys.h"

namespace kvarto {
namespace {

constexpr DenseType kMimo{"mimo_v2_flash", "MiMoV2FlashConfig", 48, 4096, 64, 4, 192, 131'072, {}};
constexpr DenseType kStep{"step3p7", "Step3p7TextConfig", 45, 4096, 64, 8, 128, 128'000, {}};
constexpr std::int64_t kMimoValueDim = 128;  // v_head_dim of MiMoV2FlashConfig

// `hybrid_layer_pattern`: 1 = windowed, 0 = full.
Result<LayerKinds> read_mimo_kinds(ClassKeys& read, std::int64_t num_layers) {
  const Keys& keys = read.keys();
  KVARTO_TRY(const auto pattern, keys.integers("hybrid_layer_pattern", 0, 1));
  LayerKinds out;
  if (pattern) {
    if (pattern->size() != static_cast<std::size_t>(num_layers)) {
      return keys.bad("hybrid_layer_pattern", fmt::format("a list of {}", pattern->size()),
                      fmt::format("one entry for each of {} layers", num_layers));
    }
    for (const std::int64_t flag : *pattern) {
      out.kinds.push_back(flag == 1 ? LayerKind::kSliding : LayerKind::kFull);
    }
    return out;
  }
  KVARTO_TRY(out, read_layer_types(read, num_layers));
  if (!out.kinds.empty()) return out;
  read.note(
      "hybrid_layer_pattern: absent, took full layers at 0 and where (i + 1) % 6 == 0, the "
      "default of MiMoV2FlashConfig");
  for (std::int64_t i = 0; i < num_layers; ++i) {
    const bool is_full = i == 0 || (i + 1) % 6 == 0;
    out.kinds.push_back(is_full ? LayerKind::kFull : LayerKind::kSliding);
  }
  return out;
}

// The heads of the windowed layers, each key falling back to that of the full layers.
Result<DenseShape> read_mimo_window_shape(ClassKeys& read, DenseShape shape) {
  KVARTO_TRY(const auto heads, read.optional_count({"swa_num_attention_heads"}, kMaxHeads));
  KVARTO_TRY(const auto kv_heads, read.optional_count({"swa_num_key_value_heads"}, kMaxHeads));
  KVARTO_TRY(const auto qk_dim, read.optional_count({"swa_head_dim"}, kMaxWidth));
  KVARTO_TRY(const auto v_dim, read.optional_count({"swa_v_head_dim"}, kMaxWidth));
  if (heads != 0) shape.q_heads = static_cast<std::uint32_t>(heads);
  if (kv_heads != 0) shape.kv_heads = static_cast<std::uint32_t>(kv_heads);
  if (qk_dim != 0) shape.qk_dim = static_cast<std::uint32_t>(qk_dim);
  if (v_dim != 0) shape.v_dim = static_cast<std::uint32_t>(v_dim);
  if (shape.q_heads % shape.kv_heads != 0) {
    return read.keys().bad("swa_num_key_value_heads", fmt::format("{}", shape.kv_heads),
                           fmt::format("a divisor of the {} query heads", shape.q_heads));
  }
  return shape;
}

struct TwoShapes {
  DenseShape full;
  DenseShape windowed;
};

Result<ModelSpec> finish(ClassKeys& read, const ClassKeys::Frame& frame, const TwoShapes& shapes,
                         const LayerKinds& kinds, const Keys& root) {
  const auto layer_of = [&](LayerKind kind) {
    return dense_layer(kind == LayerKind::kSliding ? with_kind(shapes.windowed, kind, kinds.window)
                                                   : shapes.full);
  };
  std::vector<LayerSpec> layers;
  for (const LayerKind kind : kinds.kinds) {
    if (kind == LayerKind::kChunked) {
      return read.keys().bad("layer_types", "chunked_attention",
                             "full_attention or sliding_attention in this model type");
    }
    layers.push_back(layer_of(kind));
  }
  KVARTO_TRY(const std::int64_t num_drafts, read_num_drafts(read.keys()));
  std::vector<LayerSpec> drafts;
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_drafts); ++i) {
    drafts.push_back(layer_of(i < kinds.drafts.size() ? kinds.drafts[i] : LayerKind::kFull));
  }
  return read.model(frame, layers, drafts, root);
}

}  // namespace

Result<ModelSpec> read_mimo_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kMimo.config_class);
  KVARTO_TRY(DenseGeometry geometry, read_dense_geometry(read, kMimo));
  if (!keys.has("v_head_dim")) {
    geometry.shape.v_dim = static_cast<std::uint32_t>(kMimoValueDim);
    read.note_default("v_head_dim", fmt::format("{}", kMimoValueDim));
  }
  KVARTO_TRY(LayerKinds kinds, read_mimo_kinds(read, geometry.frame.num_layers));
  KVARTO_TRY(const std::int64_t window,
             read.count({"sliding_window", "sliding_window_size"}, 128, kMaxTokens));
  kinds.window = static_cast<std::uint64_t>(window);
  KVARTO_TRY(const DenseShape windowed, read_mimo_window_shape(read, geometry.shape));
  return finish(read, geometry.frame, {geometry.shape, windowed}, kinds, root);
}

Result<ModelSpec> read_step3_family(const Keys& keys, const Keys& root) {
  ClassKeys read(keys, kStep.config_class);
  KVARTO_TRY(const DenseGeometry geometry, read_dense_geometry(read, kStep));
  KVARTO_TRY(LayerKinds kinds, read_layer_kinds(read, kStep, geometry.frame));
  DenseShape windowed = geometry.shape;
  KVARTO_TRY(auto heads, read.optional_count({"num_sliding_attention_heads"}, kMaxHeads));
  // The original spelling: a map that describes the windowed layers.
  if (const auto other = keys.child("attention_other_setting")) {
    const ClassKeys nested(*other, "");
    KVARTO_TRY(const auto other_heads, nested.optional_count({"num_attention_heads"}, kMaxHeads));
    KVARTO_TRY(const auto groups, nested.optional_count({"num_attention_groups"}, kMaxHeads));
    KVARTO_TRY(const auto head_dim, nested.optional_count({"head_dim"}, kMaxWidth));
    if (other_heads != 0) heads = other_heads;
    if (groups != 0) windowed.kv_heads = static_cast<std::uint32_t>(groups);
    if (head_dim != 0) windowed.qk_dim = windowed.v_dim = static_cast<std::uint32_t>(head_dim);
  }
  if (heads != 0) windowed.q_heads = static_cast<std::uint32_t>(heads);
  if (windowed.q_heads % windowed.kv_heads != 0) {
    return keys.bad("num_attention_groups", fmt::format("{}", windowed.kv_heads),
                    fmt::format("a divisor of the {} query heads", windowed.q_heads));
  }
  return finish(read, geometry.frame, {geometry.shape, windowed}, kinds, root);
}

}  // namespace kvarto
