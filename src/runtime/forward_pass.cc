#include "runtime/forward_pass.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace kvarto {
namespace {

using Clock = std::chrono::steady_clock;

// Tokens whose logits are computed at once when all are wanted: enough for panels to pay, and at
// most 64 MiB.
constexpr std::uint64_t kMaxLogitTokens = 64;
constexpr std::uint64_t kMaxLogitFloats = 16 << 20;
// Below this, starting threads costs more than element-wise work.
constexpr std::uint64_t kMinSharedTokens = 8;

}  // namespace

ForwardPass::ForwardPass(const Decoder& decoder, const ForwardKernels& kernels, RunnerState& runner,
                         const Options& options)
    : decoder_(decoder),
      kernels_(kernels),
      runner_(runner),
      options_(options),
      products_(kernels, runner.pool, options.uses_library) {
  std::uint64_t q_size = 0;
  std::uint64_t kv_size = 0;
  for (const DecoderLayer& layer : decoder.layers) {
    q_size = std::max(q_size, std::uint64_t{layer.q.rows});
    kv_size = std::max(kv_size, std::uint64_t{layer.k.rows});
  }
  logit_tokens_ = std::clamp<std::uint64_t>(kMaxLogitFloats / decoder.vocab_size, 1,
                                            std::min(kMaxLogitTokens, options.max_tokens));
  const auto make = [&](std::uint64_t width, std::uint64_t count) {
    buffers_.emplace_back();
    return buffers_.back().reserve(static_cast<std::size_t>(width * count));
  };
  const std::uint64_t count = options.max_tokens;
  x_ = make(decoder.hidden_size, count);
  normed_ = make(decoder.hidden_size, count);
  part_ = make(decoder.hidden_size, count);
  q_ = make(q_size, count);
  k_ = make(kv_size, count);
  v_ = make(kv_size, count);
  attended_ = make(q_size, count);
  gate_ = make(decoder.ffn_size, count);
  up_ = make(decoder.ffn_size, count);
  logits_ = make(decoder.vocab_size, logit_tokens_);
  for (const Rope& rope : decoder.ropes) {
    cosines_.emplace_back(count * (rope.dims / 2));
    sines_.emplace_back(count * (rope.dims / 2));
  }
}

template <typename Function>
void ForwardPass::each_token(std::uint64_t num_tokens, const Function& function) {
  if (num_tokens < kMinSharedTokens) {
    for (std::uint64_t t = 0; t < num_tokens; ++t) function(t);
    return;
  }
  const std::uint64_t num_threads = runner_.pool.num_threads();
  runner_.pool.run([&](std::size_t thread) {
    const std::uint64_t end = num_tokens * (thread + 1) / num_threads;
    for (std::uint64_t t = num_tokens * thread / num_threads; t < end; ++t) function(t);
  });
}

Status ForwardPass::find_streams(const KvCache& cache) {
  streams_.clear();
  for (std::uint32_t i = 0; i < decoder_.layers.size(); ++i) {
    LayerStreams streams;
    KVARTO_TRY(streams.k, cache.find_stream(i, "k"));
    KVARTO_TRY(streams.v, cache.find_stream(i, "v"));
    streams_.push_back(streams);
  }
  return {};
}

void ForwardPass::embed(std::span<const std::uint32_t> tokens) {
  const Matrix& table = decoder_.embedding;
  each_token(tokens.size(), [&](std::uint64_t t) {
    float* x = x_ + t * table.columns;
    kernels_.widen[static_cast<int>(table.type)](table.bytes + tokens[t] * table.row_bytes, x,
                                                 table.columns);
    if (decoder_.embedding_scale == 1) return;
    for (std::uint32_t i = 0; i < table.columns; ++i) x[i] *= decoder_.embedding_scale;
  });
}

void ForwardPass::norm(const Vector& weight, const float* x, float* out,
                       std::uint64_t num_vectors) {
  each_token(num_vectors, [&](std::uint64_t t) {
    kernels_.rms_norm({.x = x + t * weight.size(),
                       .weight = weight.data(),
                       .out = out + t * weight.size(),
                       .count = static_cast<std::uint32_t>(weight.size()),
                       .eps = decoder_.norm_eps});
  });
}

void ForwardPass::add_to_x(const Vector& norm_weight, float* part, std::uint64_t num_tokens) {
  if (!norm_weight.empty()) norm(norm_weight, part, part, num_tokens);
  const std::uint64_t hidden = decoder_.hidden_size;
  each_token(num_tokens, [&](std::uint64_t t) {
    float* x = x_ + t * hidden;
    const float* add = part + t * hidden;
    for (std::uint64_t i = 0; i < hidden; ++i) x[i] += add[i];
  });
}

// Norms the heads of Q and K and turns them.
void ForwardPass::finish_queries(const DecoderLayer& layer, std::uint64_t num_tokens) {
  if (!layer.q_norm.empty()) norm(layer.q_norm, q_, q_, num_tokens * layer.q_heads);
  if (!layer.k_norm.empty()) norm(layer.k_norm, k_, k_, num_tokens * layer.kv_heads);
  const Rope& rope = decoder_.ropes[layer.rope];
  const std::uint64_t pairs = rope.dims / 2;
  each_token(num_tokens, [&](std::uint64_t t) {
    RotateArgs args{.num_heads = layer.q_heads,
                    .head_dim = layer.head_dim,
                    .dims = rope.dims,
                    .cosines = cosines_[layer.rope].data() + t * pairs,
                    .sines = sines_[layer.rope].data() + t * pairs,
                    .order = rope.order};
    args.heads = q_ + t * layer.q.rows;
    kernels_.rotate(args);
    args.heads = k_ + t * layer.k.rows;
    args.num_heads = layer.kv_heads;
    kernels_.rotate(args);
  });
}

Status ForwardPass::call_attention(const CacheView& view, const DecoderLayer& layer,
                                   std::uint64_t num_tokens) {
  AttentionOptions options;
  options.scale = decoder_.attention_scale;
  options.soft_cap = decoder_.attention_soft_cap;
  options.window = layer.window;
  options.arith = options_.arith;
  const std::size_t size = static_cast<std::size_t>(num_tokens) * layer.q.rows;
  if (num_tokens == 1) {
    KVARTO_TRY(report_, decode_with(runner_, {.view = view,
                                              .num_q_heads = layer.q_heads,
                                              .q = {q_, size},
                                              .options = options,
                                              .out = {attended_, size},
                                              .lse = {}}));
    return {};
  }
  const std::uint64_t q_lens[] = {num_tokens};
  KVARTO_TRY(report_, prefill_with(runner_, {.view = view,
                                             .q_lens = q_lens,
                                             .num_q_heads = layer.q_heads,
                                             .q = {q_, size},
                                             .options = options,
                                             .out = {attended_, size},
                                             .lse = {}}));
  return {};
}

Status ForwardPass::attend(KvCache& cache, SequenceId sequence, std::uint32_t index,
                           std::uint64_t first, std::uint64_t num_tokens) {
  const DecoderLayer& layer = decoder_.layers[index];
  const auto start = Clock::now();
  const auto rows = [&](const float* from) {
    return RowSource{.codec = Codec::kF32,
                     .bytes = std::as_bytes(
                         std::span(from, static_cast<std::size_t>(num_tokens) * layer.k.rows))};
  };
  KVARTO_CHECK_OK(cache.write(sequence, streams_[index].k, first, rows(k_)));
  KVARTO_CHECK_OK(cache.write(sequence, streams_[index].v, first, rows(v_)));
  KVARTO_TRY(const LayerView view,
             cache.view(streams_[index].k, streams_[index].v, {&sequence, 1}));
  KVARTO_CHECK_OK(call_attention(view.cache(), layer, num_tokens));
  attention_s_ += std::chrono::duration<double>(Clock::now() - start).count();
  return {};
}

void ForwardPass::run_ffn(const DecoderLayer& layer, std::uint64_t num_tokens) {
  norm(layer.ffn_norm, x_, normed_, num_tokens);
  const Product inner[] = {{&layer.gate, &layer.gate_bias, gate_},
                           {&layer.up, &layer.up_bias, up_}};
  products_.run(inner, normed_, num_tokens);
  const std::uint64_t width = layer.gate.rows;
  each_token(num_tokens, [&](std::uint64_t t) {
    kernels_.gate({.gate = gate_ + t * width,
                   .up = up_ + t * width,
                   .count = static_cast<std::size_t>(width),
                   .activation = decoder_.activation});
  });
  const Product outer[] = {{&layer.down, &layer.down_bias, part_}};
  products_.run(outer, gate_, num_tokens);
  add_to_x(layer.post_ffn_norm, part_, num_tokens);
}

Status ForwardPass::run_layer(KvCache& cache, SequenceId sequence, std::uint32_t index,
                              std::uint64_t first, std::uint64_t num_tokens) {
  const DecoderLayer& layer = decoder_.layers[index];
  norm(layer.attention_norm, x_, normed_, num_tokens);
  const Product inputs[] = {
      {&layer.q, &layer.q_bias, q_}, {&layer.k, &layer.k_bias, k_}, {&layer.v, &layer.v_bias, v_}};
  products_.run(inputs, normed_, num_tokens);
  finish_queries(layer, num_tokens);
  KVARTO_CHECK_OK(attend(cache, sequence, index, first, num_tokens));
  const Product output[] = {{&layer.o, &layer.o_bias, part_}};
  products_.run(output, attended_, num_tokens);
  add_to_x(layer.post_attention_norm, part_, num_tokens);
  run_ffn(layer, num_tokens);
  return {};
}

Status ForwardPass::run(KvCache& cache, SequenceId sequence,
                        std::span<const std::uint32_t> tokens) {
  KVARTO_TRY(const std::uint64_t length, cache.num_tokens(sequence));
  const std::uint64_t first = length - tokens.size();
  for (std::size_t i = 0; i < decoder_.ropes.size(); ++i) {
    fill_rotations(decoder_.ropes[i], first, tokens.size(), cosines_[i], sines_[i]);
  }
  embed(tokens);
  for (std::uint32_t i = 0; i < decoder_.layers.size(); ++i) {
    KVARTO_CHECK_OK(run_layer(cache, sequence, i, first, tokens.size()));
  }
  return {};
}

void ForwardPass::fill_logits(std::uint64_t first, std::uint64_t num_tokens) {
  norm(decoder_.final_norm, x_ + first * decoder_.hidden_size, normed_, num_tokens);
  const Product product[] = {{&decoder_.head, nullptr, logits_}};
  products_.run(product, normed_, num_tokens);
  const float cap = decoder_.final_soft_cap;
  if (cap == 0) return;
  each_token(num_tokens, [&](std::uint64_t t) {
    float* logits = logits_ + t * decoder_.vocab_size;
    for (std::uint32_t i = 0; i < decoder_.vocab_size; ++i) {
      logits[i] = cap * std::tanh(logits[i] / cap);
    }
  });
}

std::span<const float> ForwardPass::last_logits(std::uint64_t num_tokens) {
  fill_logits(num_tokens - 1, 1);
  return {logits_, decoder_.vocab_size};
}

std::span<const float> ForwardPass::each_logits(
    std::uint64_t num_tokens,
    const std::function<void(std::uint64_t, std::span<const float>)>& visit) {
  std::span<const float> last;
  for (std::uint64_t first = 0; first < num_tokens; first += logit_tokens_) {
    const std::uint64_t count = std::min(logit_tokens_, num_tokens - first);
    fill_logits(first, count);
    for (std::uint64_t t = 0; t < count; ++t) {
      last = {logits_ + t * decoder_.vocab_size, decoder_.vocab_size};
      visit(first + t, last);
    }
  }
  return last;
}

Status ForwardPass::check_attention(KvCache& cache) {
  const std::optional<SequenceId> sequence = cache.create_sequence();
  if (!sequence) return fail(ErrorCode::kInvalidArgument, "session: the cache has no sequence");
  const DecoderLayer& layer = decoder_.layers.front();
  const std::uint64_t num_tokens = std::min<std::uint64_t>(2, options_.max_tokens);
  std::fill_n(q_, num_tokens * layer.q.rows, 0.0f);
  std::fill_n(k_, num_tokens * layer.k.rows, 0.0f);
  std::fill_n(v_, num_tokens * layer.v.rows, 0.0f);
  Status status;
  for (const std::uint64_t count : {num_tokens, std::uint64_t{1}}) {
    const auto length = cache.num_tokens(*sequence);
    if (!length || *length + count > cache.options().context) break;
    const auto grant = cache.append(*sequence, count);
    status = grant ? attend(cache, *sequence, 0, *length, count)
                   : Status(tl::unexpected<Error>(grant.error()));
    if (!status) break;
  }
  KVARTO_CHECK_OK(cache.free_sequence(*sequence));
  attention_s_ = 0;
  return status;
}

}  // namespace kvarto
