#include "runtime/rope_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <string>

namespace kvarto {
namespace {

using Scaling = RopeParameters::Scaling;

Result<double> positive(const Keys& keys, std::string_view key, double otherwise) {
  KVARTO_TRY(const auto stated, keys.real(key));
  const double value = stated.value_or(otherwise);
  if (!(value > 0) || !std::isfinite(value)) {
    return keys.bad(key, fmt::format("{}", value), "a number above 0");
  }
  return value;
}

Status check_dims(const Keys& keys, std::string_view key, double dims, std::uint32_t head_dim) {
  if (dims >= 2 && dims <= head_dim && std::fmod(dims, 2) == 0) return {};
  return keys.bad(key, fmt::format("{} turning elements", dims),
                  fmt::format("an even number, 2 to the head's {}", head_dim));
}

// --- config.json ---------------------------------------------------------------------------------

Result<Scaling> scaling_of_name(const Keys& keys, std::string_view key, std::string_view name) {
  if (name == "default" || name == "none" || name.empty()) return Scaling::kNone;
  if (name == "linear") return Scaling::kLinear;
  if (name == "llama3") return Scaling::kLlama3;
  if (name == "yarn") return Scaling::kYarn;
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: found \"{}\", expected default, linear, llama3 or yarn",
                          keys.name(key), name));
}

// mscale and mscale_all_dim are DeepSeek's: the ratio of their factors.
Result<double> yarn_factor_of(const Keys& keys, double factor) {
  KVARTO_TRY(const auto stated, keys.real("attention_factor"));
  if (stated) return positive(keys, "attention_factor", 1);
  KVARTO_TRY(const auto mscale, keys.real("mscale"));
  KVARTO_TRY(const auto all_dim, keys.real("mscale_all_dim"));
  if (mscale.value_or(0) == 0 || all_dim.value_or(0) == 0) return yarn_attention_factor(factor);
  const auto scaled = [&](double m) { return 1 + m * (yarn_attention_factor(factor) - 1); };
  return scaled(*mscale) / scaled(*all_dim);
}

// `keys` are those of rope_scaling or of rope_parameters.
Status read_scaling(const Keys& keys, const Keys& model, RopeParameters& rope) {
  const std::string_view type_key = keys.has("rope_type") ? "rope_type" : "type";
  KVARTO_TRY(const auto type, keys.string(type_key));
  KVARTO_TRY(rope.scaling, scaling_of_name(keys, type_key, type.value_or("")));
  if (rope.scaling == Scaling::kNone) return {};
  if (!keys.has("factor")) return keys.missing("factor", "a number of at least 1");
  KVARTO_TRY(rope.factor, positive(keys, "factor", 1));
  if (rope.scaling == Scaling::kLinear) return {};
  KVARTO_TRY(const double longest, positive(model, "max_position_embeddings", 2048));
  KVARTO_TRY(rope.original_context, positive(keys, "original_max_position_embeddings", longest));
  if (rope.scaling == Scaling::kLlama3) {
    KVARTO_TRY(rope.low_freq_factor, positive(keys, "low_freq_factor", 1));
    KVARTO_TRY(rope.high_freq_factor, positive(keys, "high_freq_factor", 4));
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      return keys.bad("high_freq_factor", fmt::format("{}", rope.high_freq_factor),
                      fmt::format("more than low_freq_factor {}", rope.low_freq_factor));
    }
    return {};
  }
  KVARTO_TRY(rope.beta_fast, positive(keys, "beta_fast", 32));
  KVARTO_TRY(rope.beta_slow, positive(keys, "beta_slow", 1));
  KVARTO_TRY(const auto is_truncated, keys.boolean("truncate"));
  rope.is_truncated = is_truncated.value_or(true);
  KVARTO_TRY(rope.attention_factor, yarn_factor_of(keys, rope.factor));
  return {};
}

Status read_partial(const Keys& keys, std::uint32_t head_dim, RopeParameters& rope) {
  constexpr std::string_view kKey = "partial_rotary_factor";
  if (!keys.has(kKey)) return {};
  KVARTO_TRY(const double share, positive(keys, kKey, 1));
  const double dims = std::floor(head_dim * share);
  KVARTO_CHECK_OK(check_dims(keys, kKey, dims, head_dim));
  rope.dims = static_cast<std::uint32_t>(dims);
  return {};
}

// transformers 5 keeps everything under rope_parameters, by kind of layer where there are two.
Result<RopeParameters> read_parameters(const Keys& keys, const Keys& parameters, double base,
                                       RopeParameters rope) {
  KVARTO_TRY(rope.base, positive(parameters, "rope_theta", base));
  KVARTO_CHECK_OK(read_scaling(parameters, keys, rope));
  KVARTO_CHECK_OK(read_partial(parameters, rope.dims, rope));
  return rope;
}

Result<RopeParameters> read_config_rope(const Keys& keys, const RopeDefaults& defaults,
                                        bool has_window, RopeParameters rope) {
  const bool is_apart = has_window && defaults.window_base > 0;
  const double base = is_apart ? defaults.window_base : defaults.base;
  KVARTO_CHECK_OK(read_partial(keys, rope.dims, rope));
  if (const auto parameters = keys.child("rope_parameters")) {
    const auto of_kind = parameters->child(has_window ? "sliding_attention" : "full_attention");
    if (of_kind) return read_parameters(keys, *of_kind, base, rope);
    if (!is_apart) return read_parameters(keys, *parameters, base, rope);
  }
  if (is_apart) {
    KVARTO_TRY(rope.base, positive(keys, "rope_local_base_freq", base));
    return rope;
  }
  KVARTO_TRY(rope.base, positive(keys, "rope_theta", base));
  if (const auto scaling = keys.child("rope_scaling")) {
    KVARTO_CHECK_OK(read_scaling(*scaling, keys, rope));
  }
  return rope;
}

// --- GGUF ----------------------------------------------------------------------------------------

Status read_gguf_scaling(const Keys& keys, RopeParameters& rope) {
  constexpr std::string_view kType = "rope.scaling.type";
  KVARTO_TRY(const auto type, keys.string(kType));
  KVARTO_TRY(const double old_factor, positive(keys, "rope.scale_linear", 1));
  KVARTO_TRY(rope.factor, positive(keys, "rope.scaling.factor", old_factor));
  // llama.cpp takes linear where a factor has no type.
  KVARTO_TRY(rope.scaling, scaling_of_name(keys, kType, type.value_or("linear")));
  if (rope.scaling == Scaling::kLlama3) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: found \"llama3\", expected its divisors in the tensor "
                            "rope_freqs.weight",
                            keys.name(kType)));
  }
  if (rope.scaling != Scaling::kYarn) return {};
  KVARTO_TRY(const double longest, positive(keys, "context_length", 2048));
  KVARTO_TRY(rope.original_context,
             positive(keys, "rope.scaling.original_context_length", longest));
  KVARTO_TRY(rope.beta_fast, positive(keys, "rope.scaling.yarn_beta_fast", 32));
  KVARTO_TRY(rope.beta_slow, positive(keys, "rope.scaling.yarn_beta_slow", 1));
  KVARTO_TRY(const double stated, positive(keys, "rope.scaling.attn_factor", 1));
  rope.attention_factor = stated * yarn_attention_factor(rope.factor);
  return {};
}

// Llama 3's scaling reaches GGUF as a divisor of every frequency.
Status read_divisors(const ModelSource& source, RopeParameters& rope) {
  const Tensor* tensor = source.find("rope_freqs.weight");
  if (tensor == nullptr) return {};
  const std::uint64_t count = rope.dims / 2;
  if (tensor->type != TensorType::kF32 || tensor->shape != std::vector<std::uint64_t>{count}) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: tensor \"{}\": found another type or shape, expected {} numbers "
                            "of F32",
                            source.file_of(*tensor), tensor->name, count));
  }
  rope.divisors.resize(count);
  std::memcpy(rope.divisors.data(), source.bytes_of(*tensor), count * sizeof(float));
  for (const float divisor : rope.divisors) {
    if (divisor > 0) continue;
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: tensor \"{}\": found {}, expected numbers above 0",
                            source.file_of(*tensor), tensor->name, divisor));
  }
  return {};
}

Result<RopeParameters> read_gguf_rope(const ModelSource& source, const RopeDefaults& defaults,
                                      bool has_window, RopeParameters rope) {
  constexpr std::string_view kDims = "rope.dimension_count";
  const Keys keys = source.keys();
  const bool is_apart = has_window && defaults.window_base > 0;
  KVARTO_TRY(const auto dims, keys.integer({kDims}, 0, kMaxWidth));
  if (dims) {
    KVARTO_CHECK_OK(check_dims(keys, kDims, static_cast<double>(*dims), rope.dims));
    rope.dims = static_cast<std::uint32_t>(*dims);
  }
  if (is_apart) {
    KVARTO_TRY(rope.base, positive(keys, "rope.freq_base_swa", defaults.window_base));
    return rope;
  }
  KVARTO_TRY(rope.base, positive(keys, "rope.freq_base", 10'000));
  KVARTO_CHECK_OK(read_gguf_scaling(keys, rope));
  KVARTO_CHECK_OK(read_divisors(source, rope));
  return rope;
}

}  // namespace

Result<RopeParameters> read_rope(const ModelSource& source, const RopeDefaults& defaults,
                                 bool has_window, std::uint32_t head_dim) {
  RopeParameters rope;
  rope.dims = head_dim;
  KVARTO_CHECK_OK(check_dims(source.keys(), "head_dim", head_dim, head_dim));
  if (source.format() == FileFormat::kGguf) {
    return read_gguf_rope(source, defaults, has_window, rope);
  }
  return read_config_rope(source.keys(), defaults, has_window, rope);
}

}  // namespace kvarto
