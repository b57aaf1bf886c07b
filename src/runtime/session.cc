#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <utility>

#include "kernels/forward_dispatch.h"
#include "kvarto/kv_cache.h"
#include "kvarto/plan.h"
#include "kvarto/runtime.h"
#include "runtime/checkpoint_state.h"
#include "runtime/forward_pass.h"
#include "runtime/matrix_library.h"

namespace kvarto {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMaxChunk = 1 << 16;
constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::uint64_t kUnknownMaximum = 2048;  // the context where neither user nor file says one

// Of the blocks that a sequence names. It lives, so that the call cannot fail.
std::uint64_t used_bytes(const KvCache& cache, SequenceId sequence) {
  const auto blocks = cache.num_blocks(sequence);
  std::uint64_t total = 0;
  for (std::size_t i = 0; blocks && i < blocks->size(); ++i) {
    total += (*blocks)[i] * cache.tracks()[i].block_bytes;
  }
  return total;
}

tl::unexpected<Error> refuse(std::string_view option, std::uint64_t found,
                             const std::string& expected) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: found {}, expected {}", option, found, expected));
}

}  // namespace

// Pieces in the order in which they need each other.
struct SessionState {
  SessionState(std::shared_ptr<const CheckpointState> weights, KvCache storage,
               const ForwardKernels& kernels, const KernelTable& table,
               const SessionOptions& options, bool uses_library)
      : checkpoint(std::move(weights)),
        cache(std::move(storage)),
        runner(table, {.num_threads = options.num_threads}),
        pass(checkpoint->decoder, kernels, runner,
             {.max_tokens = options.chunk_size,
              .arith = options.arith,
              .uses_library = uses_library}),
        chunk_size(options.chunk_size) {}

  std::shared_ptr<const CheckpointState> checkpoint;
  KvCache cache;
  RunnerState runner;
  ForwardPass pass;
  std::uint64_t chunk_size;
  SequenceId sequence{};
  std::uint64_t num_tokens = 0;
  SessionStats stats;
};

namespace {

// Options with their defaults filled in.
Result<SessionOptions> checked(SessionOptions options, const ModelSpec& model) {
  if (options.context == 0) {
    const std::uint64_t longest = model.max_context == 0 ? kUnknownMaximum : model.max_context;
    options.context = std::min(longest, kDefaultContextTokens);
  }
  if (options.num_threads == 0 || options.num_threads > kMaxThreads) {
    return refuse("threads", options.num_threads, fmt::format("1 to {}", kMaxThreads));
  }
  if (options.chunk_size == 0 || options.chunk_size > kMaxChunk) {
    return refuse("chunk size", options.chunk_size, fmt::format("1 to {} tokens", kMaxChunk));
  }
  options.chunk_size = std::min(options.chunk_size, options.context);
  return options;
}

Result<std::uint64_t> planned_bytes(const ModelSpec& model, const SessionOptions& options) {
  const PlanRequest request{.context = options.context,
                            .types = options.cache_types,
                            .layer_types = options.layer_types,
                            .block_size = options.block_size,
                            .micro_batch = options.chunk_size,
                            .keeps_squares = options.arith == Arith::kF16};
  KVARTO_TRY(const Plan planned, plan(model, request, {"kvarto"}));
  return planned.engines.front().bytes;
}

Result<KvCache> make_cache(const ModelSpec& model, const SessionOptions& options) {
  KVARTO_TRY(ModelSpec typed, with_types(model, options.cache_types, options.layer_types));
  CacheOptions cache;
  cache.block_size = options.block_size;
  cache.layout = options.layout;
  cache.context = options.context;
  cache.micro_batch = options.chunk_size;
  cache.keeps_squares = options.arith == Arith::kF16;
  return KvCache::create(std::move(typed), cache);
}

// Of a field of the first layer. What "auto" stands for depends on the release.
std::string_view stored_type(const ModelSpec& model, std::string_view stream_name) {
  for (const LayerGroup& group : model.groups) {
    if (group.layers.front() != 0) continue;
    for (const Stream& stream : group.streams) {
      if (stream.name == stream_name) return codec_info(stream.fields.front().codec).name;
    }
  }
  return "";
}

// Gives the session a sequence without tokens.
Status start_sequence(SessionState& state) {
  const auto sequence = state.cache.create_sequence();
  if (!sequence) return fail(ErrorCode::kInvalidArgument, "session: the cache has no sequence");
  state.sequence = *sequence;
  state.num_tokens = 0;
  return {};
}

Status check_tokens(const SessionState& state, std::span<const std::uint32_t> tokens) {
  if (tokens.empty()) return refuse("tokens", 0, "at least 1");
  const std::uint64_t room = state.cache.options().context - state.num_tokens;
  if (tokens.size() > room) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tokens: found {}, expected at most the {} that the context of {} has "
                            "room for",
                            tokens.size(), room, state.cache.options().context));
  }
  const std::uint32_t vocab = state.checkpoint->decoder.vocab_size;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < vocab) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tokens: found id {} at {}, expected ids below the vocabulary's {}",
                            tokens[i], i, vocab));
  }
  return {};
}

Status feed_chunk(SessionState& state, std::span<const std::uint32_t> chunk) {
  KVARTO_TRY(const Grant grant, state.cache.append(state.sequence, chunk.size()));
  // The cache has blocks for its whole context.
  if (grant != Grant::kDone) return fail(ErrorCode::kOutOfMemory, "session: no free block");
  KVARTO_CHECK_OK(state.pass.run(state.cache, state.sequence, chunk));
  state.num_tokens += chunk.size();
  state.stats.used_cache_bytes = used_bytes(state.cache, state.sequence);
  state.stats.peak_cache_bytes =
      std::max(state.stats.peak_cache_bytes, state.stats.used_cache_bytes);
  // Rows that only the chunk's first tokens saw.
  return state.cache.trim(state.sequence);
}

// Weights that are not finite come out here: text drawn from NaN would look like text.
Status check_logits(std::span<const float> logits, std::uint64_t position) {
  for (std::size_t token = 0; token < logits.size(); ++token) {
    if (std::isfinite(logits[token])) continue;
    return fail(ErrorCode::kCorruptData,
                fmt::format("logits: found {} for token {} after position {}, expected finite "
                            "numbers: a weight of the checkpoint may not be one",
                            logits[token], token, position));
  }
  return {};
}

// Returns the logits of the last token.
Result<std::span<const float>> feed_chunks(SessionState& state,
                                           std::span<const std::uint32_t> tokens,
                                           const FeedCallbacks& callbacks) {
  std::span<const float> logits;
  for (std::size_t first = 0; first < tokens.size(); first += state.chunk_size) {
    const auto chunk =
        tokens.subspan(first, std::min<std::size_t>(state.chunk_size, tokens.size() - first));
    KVARTO_CHECK_OK(feed_chunk(state, chunk));
    const bool is_last = first + chunk.size() == tokens.size();
    const std::uint64_t position = state.num_tokens - chunk.size();
    if (callbacks.on_logits) {
      Status checked_rows;
      logits =
          state.pass.each_logits(chunk.size(), [&](std::uint64_t i, std::span<const float> row) {
            if (checked_rows) checked_rows = check_logits(row, position + i);
            if (checked_rows) callbacks.on_logits(first + i, row);
          });
      KVARTO_CHECK_OK(checked_rows);
    } else if (is_last) {
      logits = state.pass.last_logits(chunk.size());
      KVARTO_CHECK_OK(check_logits(logits, state.num_tokens - 1));
    }
    if (callbacks.on_progress) callbacks.on_progress(first + chunk.size(), tokens.size());
  }
  return logits;
}

}  // namespace

Session::Session(std::unique_ptr<SessionState> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::create(const Checkpoint& checkpoint, const SessionOptions& asked) {
  const ModelSpec& model = checkpoint.model();
  KVARTO_TRY(const SessionOptions options, checked(asked, model));
  KVARTO_TRY(const KernelTable* table, active_kernels());
  KVARTO_TRY(const ForwardKernels* kernels, active_forward_kernels());
  KVARTO_TRY(const std::uint64_t planned, planned_bytes(model, options));
  KVARTO_TRY(KvCache cache, make_cache(model, options));
  // oneDNN chooses its instruction set itself: a set that is forced runs our kernels alone.
  const bool uses_library = has_matrix_library() && table->isa == supported_isas().back();
  try {
    auto state = std::make_unique<SessionState>(checkpoint.state_, std::move(cache), *kernels,
                                                *table, options, uses_library);
    KVARTO_CHECK_OK(state->pass.find_streams(state->cache));
    KVARTO_CHECK_OK(state->pass.check_attention(state->cache));
    KVARTO_CHECK_OK(start_sequence(*state));
    state->stats.planned_cache_bytes = planned;
    state->stats.allocated_cache_bytes = state->cache.allocated_bytes();
    state->stats.key_type = stored_type(state->cache.model(), "k");
    state->stats.value_type = stored_type(state->cache.model(), "v");
    state->stats.isa = kernels->isa;
    state->stats.matrix_library = uses_library ? "oneDNN" : "own";
    return Session(std::move(state));
  } catch (const std::exception& error) {  // std::bad_alloc, std::system_error of a thread
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("session: buffers for {} tokens and {} threads: {}", options.chunk_size,
                            options.num_threads, error.what()));
  }
}

Result<std::span<const float>> Session::feed(std::span<const std::uint32_t> tokens,
                                             const FeedCallbacks& callbacks) {
  SessionState& state = *state_;
  KVARTO_CHECK_OK(check_tokens(state, tokens));
  const bool is_decode = tokens.size() == 1 && state.num_tokens > 0;
  const auto start = Clock::now();
  const double attention_before = state.pass.attention_s();
  Result<std::span<const float>> logits;
  try {
    logits = feed_chunks(state, tokens, callbacks);
  } catch (const std::bad_alloc&) {
    logits = fail(ErrorCode::kOutOfMemory, "session: scratch memory could not be allocated");
  }
  if (!logits) {
    clear();
    return logits;
  }
  SessionStats& stats = state.stats;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  (is_decode ? stats.decode_s : stats.prefill_s) += seconds;
  (is_decode ? stats.decode_attention_s : stats.prefill_attention_s) +=
      state.pass.attention_s() - attention_before;
  (is_decode ? stats.decode_tokens : stats.prefill_tokens) += tokens.size();
  return logits;
}

void Session::clear() {
  // A live sequence of this cache can always be freed, and its slot taken again.
  static_cast<void>(state_->cache.free_sequence(state_->sequence));
  static_cast<void>(start_sequence(*state_));
}

std::uint64_t Session::num_tokens() const { return state_->num_tokens; }
std::uint64_t Session::context() const { return state_->cache.options().context; }

SessionStats Session::stats() const {
  SessionStats stats = state_->stats;
  stats.used_cache_bytes = used_bytes(state_->cache, state_->sequence);
  stats.attention = state_->pass.report();
  return stats;
}

double token_loss(std::span<const float> logits, std::uint32_t token) {
  double largest = logits[0];
  for (const float logit : logits) largest = std::max(largest, static_cast<double>(logit));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum) - static_cast<double>(logits[token]);
}

}  // namespace kvarto
