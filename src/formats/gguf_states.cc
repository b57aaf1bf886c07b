// Recurrent states of GGUF models from the `ssm.*`, `kda.*`, `shortconv.*` and `wkv.*` keys.
//
// Source of the formulas: llama.cpp, llama_hparams::n_embd_r() and n_embd_s(): convolution
// (kernel - 1) x (inner + 2 groups x state), recurrence state x inner. For gated DeltaNet the keys
// mean: inner = V heads x V dim, groups = K heads, state = K dim, time_step_rank = V heads.

#include <fmt/format.h>

#include "formats/gguf_frame.h"
#include "spec/architectures.h"
#include "spec/families/shapes.h"

namespace kvarto {
namespace {

using Kind = GgufStateRule::Kind;

// Low enough that every product of a kernel or a state with a head fits a field.
constexpr std::int64_t kMaxStateDim = kMaxLinearDim;

struct SsmKeys {
  std::int64_t kernel = 0;
  std::int64_t inner = 0;
  std::int64_t state = 0;
  std::int64_t heads = 0;
  std::int64_t groups = 0;
};

Result<SsmKeys> read_ssm(const Keys& keys, bool has_heads) {
  SsmKeys ssm;
  KVARTO_TRY(ssm.kernel, keys.required_integer({"ssm.conv_kernel"}, 1, kMaxKernel));
  KVARTO_TRY(ssm.inner, keys.required_integer({"ssm.inner_size"}, 1, kMaxWidth));
  KVARTO_TRY(ssm.state, keys.required_integer({"ssm.state_size"}, 1, kMaxStateDim));
  if (!has_heads) return ssm;
  KVARTO_TRY(ssm.heads, keys.required_integer({"ssm.time_step_rank"}, 1, kMaxHeads));
  KVARTO_TRY(ssm.groups, keys.required_integer({"ssm.group_count"}, 1, kMaxHeads));
  if (ssm.inner % ssm.heads != 0 || ssm.inner / ssm.heads > kMaxStateDim) {
    return keys.bad("ssm.time_step_rank", fmt::format("{}", ssm.heads),
                    fmt::format("a divisor of ssm.inner_size {} with at most {} a head", ssm.inner,
                                kMaxStateDim));
  }
  return ssm;
}

Result<LayerSpec> mamba_state(const Keys& keys) {
  KVARTO_TRY(const SsmKeys ssm, read_ssm(keys, false));
  return mamba1_layer(keys, ssm.inner, ssm.state, ssm.kernel);
}

Result<LayerSpec> mamba2_state(const Keys& keys) {
  KVARTO_TRY(const SsmKeys ssm, read_ssm(keys, true));
  return mamba2_layer(keys, {.heads = ssm.heads,
                             .head_dim = ssm.inner / ssm.heads,
                             .groups = ssm.groups,
                             .state_dim = ssm.state,
                             .kernel = ssm.kernel});
}

Result<LayerSpec> delta_net_state(const Keys& keys) {
  KVARTO_TRY(const SsmKeys ssm, read_ssm(keys, true));
  const std::int64_t v_dim = ssm.inner / ssm.heads;
  StateShape shape;
  shape.architecture = "gdn";
  shape.query = {.q_heads = to_u32(ssm.heads), .qk_dim = to_u32(ssm.state), .v_dim = to_u32(v_dim)};
  const std::int64_t past = ssm.kernel - 1;
  shape.conv_rows = to_u32(past);
  if (past > 0) {
    shape.conv = {{"q", to_u32(ssm.groups), to_u32(past * ssm.state)},
                  {"k", to_u32(ssm.groups), to_u32(past * ssm.state)},
                  {"v", to_u32(ssm.heads), to_u32(past * v_dim)}};
  }
  shape.state = {{"state", to_u32(ssm.heads), to_u32(ssm.state * v_dim)}};
  shape.compact_state_codec = compact_codec(keys, shape.state_codec);
  return state_layer(shape);
}

Result<LayerSpec> kda_state(const GgufFrame& frame) {
  const Keys& keys = frame.keys;
  KVARTO_TRY(const auto kernel, keys.required_integer({"ssm.conv_kernel"}, 1, kMaxKernel));
  KVARTO_TRY(const auto dim, keys.required_integer({"kda.head_dim"}, 1, kMaxStateDim));
  const std::int64_t heads = frame.heads.empty() ? 0 : frame.heads.front();
  if (heads == 0) return keys.missing("attention.head_count", "the number of KDA heads");
  return kda_layer(keys, heads, dim, kernel);
}

Result<LayerSpec> short_conv_state(const GgufFrame& frame) {
  KVARTO_TRY(const auto cached, frame.keys.required_integer({"shortconv.l_cache"}, 1, kMaxKernel));
  if (frame.hidden_size == 0) return frame.keys.missing("embedding_length", "an integer");
  StateShape shape;
  shape.architecture = "short_conv";
  if (cached > 1) shape.conv = {{"x", to_u32(frame.hidden_size), to_u32(cached - 1)}};
  shape.conv_rows = to_u32(cached - 1);
  return state_layer(shape);
}

Result<LayerSpec> rwkv_state(const GgufFrame& frame) {
  const Keys& keys = frame.keys;
  KVARTO_TRY(const auto dim, keys.required_integer({"wkv.head_size"}, 1, kMaxStateDim));
  KVARTO_TRY(const auto shifts, keys.integer({"token_shift_count"}, 0, kMaxKernel));
  if (frame.hidden_size == 0 || frame.hidden_size % dim != 0) {
    return keys.bad("wkv.head_size", fmt::format("{}", dim),
                    fmt::format("a divisor of embedding_length {}", frame.hidden_size));
  }
  const auto heads = to_u32(frame.hidden_size / dim);
  StateShape shape;
  shape.architecture = "rwkv";
  shape.query = {.q_heads = heads, .qk_dim = to_u32(dim), .v_dim = to_u32(dim)};
  // Two shifts (attention and feed-forward) unless the file says otherwise.
  const std::int64_t count = shifts.value_or(2);
  if (count > 0) shape.conv = {{"shift", to_u32(frame.hidden_size), to_u32(count)}};
  shape.conv_codec = Codec::kF32;
  shape.state = {{"state", heads, to_u32(dim * dim)}};
  return state_layer(shape);
}

Kind kind_by_keys(const Keys& keys) {
  if (keys.has("shortconv.l_cache")) return Kind::kShortConv;
  if (keys.has("kda.head_dim")) return Kind::kKda;
  if (keys.has("wkv.head_size")) return Kind::kRwkv;
  return keys.has("ssm.group_count") ? Kind::kMamba2 : Kind::kMamba;
}

}  // namespace

Result<LayerSpec> read_gguf_state(const GgufFrame& frame) {
  const Kind stated = frame.rule.state.kind;
  switch (stated == Kind::kByKeys ? kind_by_keys(frame.keys) : stated) {
    case Kind::kMamba2:
      return mamba2_state(frame.keys);
    case Kind::kDeltaNet:
      return delta_net_state(frame.keys);
    case Kind::kKda:
      return kda_state(frame);
    case Kind::kShortConv:
      return short_conv_state(frame);
    case Kind::kRwkv:
      return rwkv_state(frame);
    case Kind::kMamba:
    case Kind::kByKeys:
      break;
  }
  return mamba_state(frame.keys);
}

}  // namespace kvarto
