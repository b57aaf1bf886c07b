// Runs a language model over the library's own cache: weights from a model file, token ids in,
// logits out.
//
//   auto checkpoint = Checkpoint::open("model.gguf");
//   auto session = Session::create(*checkpoint, {.context = 4096, .num_threads = 2});
//   auto logits = session->feed(prompt);   // of the last token; then one token at a time
//
// docs/runtime.md tells which models run and how.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/attention.h"
#include "kvarto/layer_types.h"
#include "kvarto/layout.h"
#include "kvarto/model_spec.h"
#include "kvarto/result.h"
#include "kvarto/tracks.h"

namespace kvarto {

struct CheckpointState;  // mapped files and what a forward pass does with their tensors
struct SessionState;     // cache, threads and buffers

// A model with its weights, mapped into memory. Immutable; copies share the mapping. The files must
// not change while a copy or a session lives.
class Checkpoint {
 public:
  // Opens a `.gguf` (any part), a `.safetensors` or its index, a folder with a `config.json` and
  // weights, or that `config.json`. Every tensor that the model needs is found and its type and
  // shape are checked before anything is allocated.
  // Errors: kNotFound (no such file; a name without weights), kIo, kCorruptData (a tensor that is
  // missing, misshapen or cut off: file and tensor are named), kUnsupported (a family, an option or
  // a tensor that this runtime does not know).
  [[nodiscard]] static Result<Checkpoint> open(std::string_view path);

  [[nodiscard]] const ModelSpec& model() const;
  // The forward pass that runs: "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3".
  [[nodiscard]] std::string_view family() const;
  [[nodiscard]] std::uint32_t vocab_size() const;
  // Bytes of the tensors that the forward pass uses, as stored.
  [[nodiscard]] std::uint64_t weight_bytes() const;
  // The files that hold them.
  [[nodiscard]] const std::vector<std::string>& files() const;

 private:
  friend class Session;
  explicit Checkpoint(std::shared_ptr<const CheckpointState> state);
  std::shared_ptr<const CheckpointState> state_;
};

struct SessionOptions {
  // Tokens that a session may hold; 0 = the smaller of the model's maximum and 32,768. More than
  // the model's maximum is accepted.
  std::uint64_t context = 0;
  CacheTypes cache_types;
  std::vector<LayerTypes> layer_types;  // of some layers alone
  std::uint32_t num_threads = 1;
  // Tokens of a prompt that go through the layers at once; the most that a window holds beside
  // itself. At most 65,536.
  std::uint64_t chunk_size = kDefaultMicroBatch;
  std::uint64_t block_size = kDefaultBlockSize;  // of the cache, in tokens
  Layout layout = Layout::kHardware;
  Arith arith = Arith::kAuto;  // of attention
};

// Both are called on the caller's thread, inside feed(), and must not call back into the session.
struct FeedCallbacks {
  // After every chunk: tokens done, of all tokens fed.
  std::function<void(std::uint64_t num_done, std::uint64_t num_tokens)> on_progress;
  // The logits that follow each token of the feed, in order; `index` counts from 0 within the feed.
  // Without it only the last token's are computed.
  std::function<void(std::uint64_t index, std::span<const float> logits)> on_logits;
};

// What a session did since it was made. A feed of one token onto others is a decode, every other
// feed a prefill.
struct SessionStats {
  std::uint64_t prefill_tokens = 0;
  std::uint64_t decode_tokens = 0;
  double prefill_s = 0;
  double decode_s = 0;
  double prefill_attention_s = 0;  // parts of the above
  double decode_attention_s = 0;
  std::uint64_t planned_cache_bytes = 0;    // the planner's engine `kvarto` at this context
  std::uint64_t allocated_cache_bytes = 0;  // KvCache::allocated_bytes
  std::uint64_t used_cache_bytes = 0;       // blocks that hold a row now
  std::uint64_t peak_cache_bytes = 0;       // the most that they were after a chunk
  std::string_view key_type;                // as stored, by codec name, in the first layer
  std::string_view value_type;
  std::string_view isa;             // of products with weights
  std::string_view matrix_library;  // of products with many tokens: "oneDNN" or "own"
  AttentionReport attention;        // of the last layer that ran
};

// One sequence of tokens in the making. Not thread-safe; one owner. Movable.
class Session {
 public:
  // Allocates the cache and all buffers. Errors: kInvalidArgument for options that cannot be and
  // for cache types that the model cannot hold; kUnsupported for cache types or arithmetic that
  // attention cannot run; kOutOfMemory.
  [[nodiscard]] static Result<Session> create(const Checkpoint& checkpoint,
                                              const SessionOptions& options);
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Appends `tokens` and returns the logits [vocab_size] that follow the last of them; valid until
  // the next call. Errors: kInvalidArgument for no tokens, a token outside the vocabulary, or more
  // tokens than the context has room for: nothing has changed then. Arithmetic that turns out not
  // to be exact enough for the data (Arith::kF16) is kUnsupported, logits that are not finite (a
  // weight that is not) are kCorruptData, and the session is empty then.
  [[nodiscard]] Result<std::span<const float>> feed(std::span<const std::uint32_t> tokens,
                                                    const FeedCallbacks& callbacks = {});

  // Forgets all tokens; statistics stay.
  void clear();

  [[nodiscard]] std::uint64_t num_tokens() const;
  [[nodiscard]] std::uint64_t context() const;
  [[nodiscard]] SessionStats stats() const;

 private:
  explicit Session(std::unique_ptr<SessionState> state);
  std::unique_ptr<SessionState> state_;
};

// -log of the probability that a softmax of `logits` gives to `token`, in nats, in double
// precision. Requires: token < logits.size().
[[nodiscard]] double token_loss(std::span<const float> logits, std::uint32_t token);

}  // namespace kvarto
