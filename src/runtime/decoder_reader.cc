#include "runtime/decoder_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>

#include "kernels/kernels.h"
#include "runtime/family.h"
#include "runtime/rope_reader.h"
#include "runtime/tensor_reader.h"

namespace kvarto {
namespace {

// The kernels' limit; far beyond any model.
constexpr std::uint32_t kMaxHeadElements = kMaxHeadDim;

// A tensor of a layer under its names in GGUF and in Hugging Face's files.
struct LayerName {
  std::string_view gguf;
  std::string_view config;
};

constexpr LayerName kAttentionNorm{"attn_norm", "input_layernorm"};
constexpr LayerName kPostAttentionNorm{"post_attention_norm", "post_attention_layernorm"};
constexpr LayerName kFfnNorm{"ffn_norm", "post_attention_layernorm"};
constexpr LayerName kInnerFfnNorm{"ffn_norm", "pre_feedforward_layernorm"};
constexpr LayerName kPostFfnNorm{"post_ffw_norm", "post_feedforward_layernorm"};
constexpr LayerName kQ{"attn_q", "self_attn.q_proj"};
constexpr LayerName kK{"attn_k", "self_attn.k_proj"};
constexpr LayerName kV{"attn_v", "self_attn.v_proj"};
constexpr LayerName kO{"attn_output", "self_attn.o_proj"};
constexpr LayerName kQNorm{"attn_q_norm", "self_attn.q_norm"};
constexpr LayerName kKNorm{"attn_k_norm", "self_attn.k_norm"};
constexpr LayerName kGate{"ffn_gate", "mlp.gate_proj"};
constexpr LayerName kUp{"ffn_up", "mlp.up_proj"};
constexpr LayerName kDown{"ffn_down", "mlp.down_proj"};

class DecoderReader {
 public:
  DecoderReader(const ModelSource& source, const Family& family)
      : source_(source),
        family_(family),
        keys_(source.keys()),
        tensors_(source),
        is_gguf_(source.format() == FileFormat::kGguf) {}

  Result<Decoder> read() {
    decoder_.family = family_.name;
    decoder_.activation = family_.activation;
    KVARTO_CHECK_OK(read_choices());
    KVARTO_CHECK_OK(read_embedding());
    KVARTO_CHECK_OK(place_layers());
    KVARTO_CHECK_OK(read_ropes());
    for (std::uint32_t i = 0; i < decoder_.layers.size(); ++i) KVARTO_CHECK_OK(read_layer(i));
    KVARTO_CHECK_OK(read_head());
    KVARTO_CHECK_OK(tensors_.check_all_used());
    decoder_.weight_bytes = tensors_.bytes_used();
    KVARTO_CHECK_OK(read_attention_scale());
    if (family_.finish != nullptr) KVARTO_CHECK_OK(family_.finish(source_, decoder_));
    return std::move(decoder_);
  }

 private:
  // Key of GGUF, key of config.json.
  Result<std::optional<double>> real(std::string_view gguf, std::string_view config) const {
    return keys_.real(is_gguf_ ? gguf : config);
  }

  Status check_activation() const {
    if (is_gguf_) return {};
    for (const std::string_view key : {"hidden_activation", "hidden_act"}) {
      KVARTO_TRY(const auto name, keys_.string(key));
      if (!name) continue;
      if (*name == family_.activation_name) return {};
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: found \"{}\", expected \"{}\" in this family", keys_.name(key),
                              *name, family_.activation_name));
    }
    return {};
  }

  Status read_need(std::string_view key, Need& need) const {
    need = Need::kOptional;  // GGUF has no key for it
    if (is_gguf_) return {};
    KVARTO_TRY(const auto stated, keys_.boolean(key));
    need = stated.value_or(false) ? Need::kRequired : Need::kNone;
    return {};
  }

  Status read_choices() {
    KVARTO_CHECK_OK(check_activation());
    constexpr std::string_view kGgufEps = "attention.layer_norm_rms_epsilon";
    KVARTO_TRY(const auto eps, real(kGgufEps, "rms_norm_eps"));
    if (is_gguf_ && !eps) return keys_.missing(kGgufEps, "a number above 0");
    const double value = eps.value_or(family_.default_eps);
    if (!(value >= 0 && value < 1)) {
      return keys_.bad(is_gguf_ ? kGgufEps : "rms_norm_eps", fmt::format("{}", value),
                       "a number from 0 to 1");
    }
    decoder_.norm_eps = static_cast<float>(value);
    KVARTO_CHECK_OK(read_need("attention_bias", bias_));
    KVARTO_CHECK_OK(read_need("mlp_bias", ffn_bias_));
    if (family_.has_attention_cap) {
      KVARTO_CHECK_OK(read_soft_cap("attn_logit_softcapping", family_.attention_cap,
                                    decoder_.attention_soft_cap));
    }
    if (!family_.has_final_cap) return {};
    return read_soft_cap("final_logit_softcapping", family_.final_cap, decoder_.final_soft_cap);
  }

  // An explicit null means none.
  Status read_soft_cap(std::string_view key, double otherwise, float& cap) const {
    KVARTO_TRY(const auto stated, keys_.real(key));
    cap = static_cast<float>(stated.value_or(keys_.is_null(key) ? 0 : otherwise));
    if (cap >= 0 && std::isfinite(cap)) return {};
    return keys_.bad(key, fmt::format("{}", cap), "a number above 0");
  }

  Status read_attention_scale() {
    const DecoderLayer& first = decoder_.layers.front();
    double scalar = first.head_dim;
    if (!is_gguf_ && family_.query_scalar > 0) {
      constexpr std::string_view kKey = "query_pre_attn_scalar";
      KVARTO_TRY(const auto stated, keys_.real(kKey));
      scalar = stated.value_or(family_.query_scalar);
      if (!(scalar > 0)) return keys_.bad(kKey, fmt::format("{}", scalar), "a number above 0");
    }
    if (is_gguf_ && decoder_.layers.size() == family_.layers_of_hidden_scalar) {
      scalar = static_cast<double>(decoder_.hidden_size) / first.q_heads;
    }
    decoder_.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
    return {};
  }

  Status read_embedding() {
    KVARTO_CHECK_OK(tensors_.find_prefix());
    const ModelSpec& spec = source_.spec();
    const std::string name =
        is_gguf_ ? "token_embd.weight" : tensors_.full_name("embed_tokens.weight");
    KVARTO_CHECK_OK(
        tensors_.read_matrix(name, {spec.vocab_size, spec.hidden_size}, decoder_.embedding));
    decoder_.vocab_size = decoder_.embedding.rows;
    decoder_.hidden_size = decoder_.embedding.columns;
    if (family_.is_embedding_scaled) {
      decoder_.embedding_scale = std::sqrt(static_cast<float>(decoder_.hidden_size));
    }
    return {};
  }

  tl::unexpected<Error> bad_layer(std::uint32_t layer, const std::string& found) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: layer {}: found {}, expected K and V of its own, of equal width",
                            keys_.where(), layer, found));
  }

  Status place_layers() {
    decoder_.layers.resize(source_.spec().num_layers);
    if (decoder_.layers.empty()) return keys_.missing("num_hidden_layers", "at least 1");
    for (const LayerGroup& group : source_.spec().groups) {
      for (const std::uint32_t i : group.layers) KVARTO_CHECK_OK(place_layer(group, i));
    }
    return {};
  }

  Status place_layer(const LayerGroup& group, std::uint32_t index) {
    if (group.streams.size() != 2 || group.streams[0].name != "k" || group.streams[1].name != "v" ||
        group.streams[0].owner_layer) {
      return bad_layer(index, fmt::format("architecture {}", group.architecture));
    }
    const QueryShape& query = group.query;
    if (query.qk_dim != query.v_dim || query.qk_dim == 0 || query.qk_dim > kMaxHeadElements) {
      return bad_layer(index, fmt::format("heads of {} and {}", query.qk_dim, query.v_dim));
    }
    const Lifetime& lifetime = group.streams[0].lifetime;
    if (lifetime.kind != Lifetime::Kind::kNever && lifetime.kind != Lifetime::Kind::kWindow) {
      return bad_layer(index, fmt::format("lifetime {}", to_string(lifetime)));
    }
    DecoderLayer& layer = decoder_.layers[index];
    layer.q_heads = query.q_heads;
    layer.kv_heads = group.streams[0].fields.front().heads;
    layer.head_dim = query.qk_dim;
    layer.window = lifetime.kind == Lifetime::Kind::kWindow ? lifetime.tokens : 0;
    if (layer.kv_heads == 0 || layer.q_heads % layer.kv_heads != 0) {
      return bad_layer(index,
                       fmt::format("{} query heads on {} KV heads", layer.q_heads, layer.kv_heads));
    }
    return {};
  }

  Status read_ropes() {
    const RopeOrder order = is_gguf_ ? family_.gguf_rope : RopeOrder::kHalves;
    const std::uint32_t head_dim = decoder_.layers.front().head_dim;
    for (DecoderLayer& layer : decoder_.layers) {
      if (layer.head_dim != head_dim) return bad_layer(0, "heads of several widths");
      layer.rope = layer.window > 0 ? 1 : 0;
    }
    for (const bool has_window : {false, true}) {
      KVARTO_TRY(const RopeParameters rope, read_rope(source_, family_.rope, has_window, head_dim));
      decoder_.ropes.push_back(make_rope(rope, order));
    }
    return {};
  }

  [[nodiscard]] std::string name_of(std::uint32_t layer, const LayerName& name,
                                    std::string_view kind) const {
    return is_gguf_ ? fmt::format("blk.{}.{}.{}", layer, name.gguf, kind)
                    : tensors_.full_name(fmt::format("layers.{}.{}.{}", layer, name.config, kind));
  }

  Status read_norm(std::uint32_t layer, const LayerName& name, std::uint64_t count,
                   Vector& vector) {
    const float offset = is_gguf_ ? 0 : family_.config_norm_offset;
    return tensors_.read_vector(name_of(layer, name, "weight"), {count, offset, Need::kRequired},
                                vector);
  }

  // A projection and its bias.
  struct Projection {
    LayerName name;
    TensorReader::Shape shape;
    Need bias = Need::kNone;
  };
  Status read_projection(std::uint32_t layer, const Projection& projection, Matrix& matrix,
                         Vector& bias) {
    KVARTO_CHECK_OK(
        tensors_.read_matrix(name_of(layer, projection.name, "weight"), projection.shape, matrix));
    return tensors_.read_vector(name_of(layer, projection.name, "bias"),
                                {matrix.rows, 0, projection.bias}, bias);
  }

  Status read_attention(std::uint32_t index, DecoderLayer& layer) {
    const std::uint64_t hidden = decoder_.hidden_size;
    const std::uint64_t q_rows = std::uint64_t{layer.q_heads} * layer.head_dim;
    const std::uint64_t kv_rows = std::uint64_t{layer.kv_heads} * layer.head_dim;
    const Need qkv_bias = family_.has_qkv_bias ? Need::kRequired : bias_;
    KVARTO_CHECK_OK(read_norm(index, kAttentionNorm, hidden, layer.attention_norm));
    KVARTO_CHECK_OK(
        read_projection(index, {kQ, {q_rows, hidden}, qkv_bias}, layer.q, layer.q_bias));
    KVARTO_CHECK_OK(
        read_projection(index, {kK, {kv_rows, hidden}, qkv_bias}, layer.k, layer.k_bias));
    KVARTO_CHECK_OK(
        read_projection(index, {kV, {kv_rows, hidden}, qkv_bias}, layer.v, layer.v_bias));
    KVARTO_CHECK_OK(read_projection(index, {kO, {hidden, q_rows}, bias_}, layer.o, layer.o_bias));
    if (family_.has_qk_norm) {
      KVARTO_CHECK_OK(read_norm(index, kQNorm, layer.head_dim, layer.q_norm));
      KVARTO_CHECK_OK(read_norm(index, kKNorm, layer.head_dim, layer.k_norm));
    }
    if (!family_.has_post_norms) return {};
    return read_norm(index, kPostAttentionNorm, hidden, layer.post_attention_norm);
  }

  Status read_ffn(std::uint32_t index, DecoderLayer& layer) {
    const std::uint64_t hidden = decoder_.hidden_size;
    if (index == 0) KVARTO_CHECK_OK(read_ffn_size());
    const std::uint64_t ffn = decoder_.ffn_size;
    const LayerName& norm = family_.has_post_norms ? kInnerFfnNorm : kFfnNorm;
    KVARTO_CHECK_OK(read_norm(index, norm, hidden, layer.ffn_norm));
    KVARTO_CHECK_OK(
        read_projection(index, {kGate, {ffn, hidden}, ffn_bias_}, layer.gate, layer.gate_bias));
    decoder_.ffn_size = layer.gate.rows;
    KVARTO_CHECK_OK(read_projection(index, {kUp, {layer.gate.rows, hidden}, ffn_bias_}, layer.up,
                                    layer.up_bias));
    KVARTO_CHECK_OK(read_projection(index, {kDown, {hidden, layer.gate.rows}, ffn_bias_},
                                    layer.down, layer.down_bias));
    if (!family_.has_post_norms) return {};
    return read_norm(index, kPostFfnNorm, hidden, layer.post_ffn_norm);
  }

  // 0 where the keys are silent: the first layer's tensors decide then.
  Status read_ffn_size() {
    const std::string_view key = is_gguf_ ? "feed_forward_length" : "intermediate_size";
    if (const Value* value = keys_.find(key);
        value != nullptr && std::holds_alternative<ValueList>(value->data)) {
      return fail(ErrorCode::kUnsupported,
                  keys_.name(key) + ": found a list, expected one size for all layers");
    }
    KVARTO_TRY(const auto size, keys_.integer({key}, 1, kMaxWidth));
    decoder_.ffn_size = static_cast<std::uint32_t>(size.value_or(0));
    return {};
  }

  Status read_layer(std::uint32_t index) {
    DecoderLayer& layer = decoder_.layers[index];
    KVARTO_CHECK_OK(read_attention(index, layer));
    return read_ffn(index, layer);
  }

  Status read_head() {
    const std::string norm = is_gguf_ ? "output_norm.weight" : tensors_.full_name("norm.weight");
    const float offset = is_gguf_ ? 0 : family_.config_norm_offset;
    KVARTO_CHECK_OK(tensors_.read_vector(norm, {decoder_.hidden_size, offset, Need::kRequired},
                                         decoder_.final_norm));
    const std::string name = tensors_.head_name();
    bool is_tied = is_gguf_ ? source_.find(name) == nullptr : family_.is_head_tied;
    for (const Keys& place : {source_.root_keys(), keys_}) {
      if (is_gguf_) break;
      KVARTO_TRY(const auto stated, place.boolean("tie_word_embeddings"));
      is_tied = stated.value_or(is_tied);
    }
    if (is_tied) {
      tensors_.pass_over(name);
      decoder_.head = decoder_.embedding;
      return {};
    }
    return tensors_.read_matrix(name, {decoder_.vocab_size, decoder_.hidden_size}, decoder_.head);
  }

  const ModelSource& source_;
  const Family& family_;
  Keys keys_;
  TensorReader tensors_;
  bool is_gguf_;
  Need bias_ = Need::kNone;
  Need ffn_bias_ = Need::kNone;
  Decoder decoder_;
};

}  // namespace

Result<Decoder> read_decoder(const ModelSource& source) {
  KVARTO_TRY(const Family* family, find_family(source));
  return DecoderReader(source, *family).read();
}

}  // namespace kvarto
