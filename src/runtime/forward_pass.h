// One chunk of tokens through all layers of a decoder, over a cache.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "attention/runner_state.h"
#include "base/aligned_floats.h"
#include "kvarto/kv_cache.h"
#include "runtime/decoder.h"
#include "runtime/products.h"

namespace kvarto {

// The streams of one layer in the cache.
struct LayerStreams {
  StreamId k{};
  StreamId v{};
};

// Not thread-safe; one owner.
class ForwardPass {
 public:
  struct Options {
    std::uint64_t max_tokens = 0;  // of one chunk
    Arith arith = Arith::kAuto;
    bool uses_library = false;
  };
  // Allocates the buffers of a chunk. The decoder, the cache and the runner must outlive this.
  // Throws std::bad_alloc.
  ForwardPass(const Decoder& decoder, const ForwardKernels& kernels, RunnerState& runner,
              const Options& options);

  // Errors: those of KvCache::find_stream().
  Status find_streams(const KvCache& cache);

  // Takes `tokens`, whose rows `sequence` has just been given, through all layers. Requires:
  // tokens are of the vocabulary and at most max_tokens. Errors: those of attention.
  Status run(KvCache& cache, SequenceId sequence, std::span<const std::uint32_t> tokens);

  // The logits of the last token of the last run; valid until the next call.
  std::span<const float> last_logits(std::uint64_t num_tokens);
  // Calls visit(token, logits) for every token of the last run; returns those of the last.
  std::span<const float> each_logits(
      std::uint64_t num_tokens,
      const std::function<void(std::uint64_t, std::span<const float>)>& visit);

  // Checks that attention can run over this cache, on rows of zeros of a sequence of its own.
  Status check_attention(KvCache& cache);

  [[nodiscard]] const AttentionReport& report() const { return report_; }
  [[nodiscard]] double attention_s() const { return attention_s_; }  // of all runs

 private:
  void embed(std::span<const std::uint32_t> tokens);
  void norm(const Vector& weight, const float* x, float* out, std::uint64_t num_vectors);
  void add_to_x(const Vector& norm_weight, float* part, std::uint64_t num_tokens);
  void finish_queries(const DecoderLayer& layer, std::uint64_t num_tokens);
  Status attend(KvCache& cache, SequenceId sequence, std::uint32_t index, std::uint64_t first,
                std::uint64_t num_tokens);
  Status call_attention(const CacheView& view, const DecoderLayer& layer, std::uint64_t num_tokens);
  Status run_layer(KvCache& cache, SequenceId sequence, std::uint32_t index, std::uint64_t first,
                   std::uint64_t num_tokens);
  void run_ffn(const DecoderLayer& layer, std::uint64_t num_tokens);
  // logits_ [num_tokens, vocab_size] of the tokens from `first` on.
  void fill_logits(std::uint64_t first, std::uint64_t num_tokens);
  template <typename Function>
  void each_token(std::uint64_t num_tokens, const Function& function);

  const Decoder& decoder_;
  const ForwardKernels& kernels_;
  RunnerState& runner_;
  Options options_;
  Products products_;
  std::vector<LayerStreams> streams_;
  float* x_ = nullptr;       // [max_tokens, hidden], the residual stream
  float* normed_ = nullptr;  // [max_tokens, hidden]
  float* part_ = nullptr;    // [max_tokens, hidden], what a block adds
  float* q_ = nullptr;
  float* k_ = nullptr;
  float* v_ = nullptr;
  float* attended_ = nullptr;
  float* gate_ = nullptr;
  float* up_ = nullptr;
  float* logits_ = nullptr;
  std::uint64_t logit_tokens_ = 1;
  std::vector<AlignedFloats> buffers_;
  std::vector<std::vector<float>> cosines_;  // of each rope
  std::vector<std::vector<float>> sines_;
  AttentionReport report_;
  double attention_s_ = 0;
};

}  // namespace kvarto
