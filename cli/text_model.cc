#include "text_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "kvarto/plan.h"
#include "kvarto/vocabulary_file.h"
#include "numbers.h"
#include "output.h"
#include "stop_signal.h"

namespace kvarto::cli {
namespace {

constexpr std::size_t kMaxInputBytes = std::size_t{1} << 30;

Result<SessionOptions> session_of(const TextModelOptions& asked, const ModelSpec& model,
                                  std::vector<std::string>* notes) {
  SessionOptions options;
  const std::uint64_t own = model.max_context == 0 ? kDefaultContextTokens : model.max_context;
  options.context = asked.context.value_or(std::min(own, kDefaultContextTokens));
  if (model.max_context != 0 && options.context > model.max_context) {
    notes->push_back(fmt::format("{} tokens are above the model's maximum of {}", options.context,
                                 model.max_context));
  }
  options.cache_types = cache_types(asked.model);
  KVARTO_TRY(options.layer_types, layer_types(asked.model));
  if (!options.layer_types.empty()) {
    notes->push_back(
        fmt::format("types by layer: {}", fmt::join(asked.model.types_by_layer, ", ")));
  }
  const std::uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
  KVARTO_TRY(options.num_threads, narrow("--threads", asked.threads.value_or(cores)));
  options.chunk_size = asked.micro_batch.value_or(kDefaultMicroBatch);
  options.block_size = asked.block_size.value_or(kDefaultBlockSize);
  KVARTO_TRY(options.layout, parse_layout(asked.layout));
  KVARTO_TRY(options.arith, parse_arith(asked.arithmetic));
  return options;
}

Result<Vocabulary> vocabulary_of(const TextModelOptions& asked) {
  const std::string& path = asked.tokenizer.empty() ? asked.model.model : asked.tokenizer;
  Result<Vocabulary> vocabulary = read_vocabulary(path);
  if (vocabulary.has_value()) return vocabulary;
  Error error = as_input_error(path, vocabulary.error());
  if (vocabulary.error().code == ErrorCode::kNotFound) {
    error.code = ErrorCode::kIo;
    if (asked.tokenizer.empty()) error.message += "; --tokenizer FILE names one";
  }
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace

void declare_text_model(OptionSet& options, TextModelOptions* asked) {
  options.positional("MODEL", &asked->model.model,
                     "a .gguf, a folder with config.json and safetensors, or one of these files");
  options.text("--tokenizer", "FILE", &asked->tokenizer,
               "a .gguf, tokenizer.json or tokenizer.model (default: the model's own, or that "
               "beside it)");
  options.section("cache");
  options.count("-c,--ctx-size,--max-model-len,--context-length", 1, &asked->context,
                "tokens that the cache holds (default: the smaller of the model's maximum and "
                "32768)");
  options.text("-ctk,--cache-type-k", "TYPE", &asked->model.key_type,
               "type of K: " + type_names(TypeUse::kHeads));
  options.text("-ctv,--cache-type-v", "TYPE", &asked->model.value_type, "type of V, likewise");
  options.text("--kv-cache-dtype,--kv-dtype", "TYPE", &asked->model.both_types,
               "both types (default bf16)");
  options.list("--kv-types-by-layer", "LAYERS=TYPE", &asked->model.types_by_layer,
               "types of some layers alone: 0-3=f16, or 7=q8_0/q4_0 for K and V; several with "
               "commas");
  options.count("--block-size,--page-size", 1, &asked->block_size, "tokens a block (default 16)");
  options.text("--layout", "L", &asked->layout, "generic or hardware (default hardware)");
  options.section("how");
  options.count("-t,--threads", 1, &asked->threads,
                "threads (default: the cores that this process may use)");
  options.count("-ub,--ubatch-size,--max-num-batched-tokens", 1, &asked->micro_batch,
                "tokens of a prompt that go through the model at once (default 512)");
  options.text("--arith", "A", &asked->arithmetic,
               "of attention: auto, f32, f16 or int8 (default auto)");
}

Result<TextModel> open_text_model(const TextModelOptions& asked) {
  const std::string& path = asked.model.model;
  if (path.empty()) {
    return fail(ErrorCode::kInvalidArgument, "no MODEL: name a file or folder with weights");
  }
  Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint.has_value()) {
    return tl::unexpected<Error>(as_input_error(path, checkpoint.error()));
  }
  KVARTO_TRY(Vocabulary vocabulary, vocabulary_of(asked));
  Result<Tokenizer> tokenizer = Tokenizer::create(std::move(vocabulary));
  if (!tokenizer.has_value()) {
    return tl::unexpected<Error>(as_input_error(path, tokenizer.error()));
  }
  TextModel model{std::move(*checkpoint), std::move(*tokenizer), {}, {}};
  model.notes = model.checkpoint.model().notes;
  KVARTO_TRY(model.session, session_of(asked, model.checkpoint.model(), &model.notes));
  return model;
}

Result<std::span<const float>> feed_prompt(Session& session, std::span<const TokenId> tokens,
                                           std::uint64_t piece_tokens,
                                           const FeedCallbacks& callbacks) {
  const std::uint64_t all = tokens.size();
  for (std::uint64_t done = 0; done < all;) {
    std::uint64_t count = std::min<std::uint64_t>(piece_tokens, all - done);
    // A last piece of one token would be counted as decoded.
    if (all - done - count == 1) ++count;
    FeedCallbacks shifted;
    if (callbacks.on_logits) {
      shifted.on_logits = [&, done](std::uint64_t index, std::span<const float> logits) {
        callbacks.on_logits(done + index, logits);
      };
    }
    const auto logits = session.feed(tokens.subspan(done, count), shifted);
    if (!logits.has_value()) return tl::unexpected<Error>(logits.error());
    done += count;
    if (callbacks.on_progress) callbacks.on_progress(done, all);
    if (StopSignal::is_stopping()) return std::span<const float>();
    if (done == all) return *logits;
  }
  return std::span<const float>();
}

std::string input_name(const std::string& path) { return path == "-" ? "standard input" : path; }

Result<std::string> read_input(const std::string& path) {
  const auto close = [](std::FILE* file) {
    if (file != stdin) std::fclose(file);
  };
  const std::unique_ptr<std::FILE, decltype(close)> file(
      path == "-" ? stdin : std::fopen(path.c_str(), "rb"), close);
  const std::string name = input_name(path);
  if (file == nullptr) return fail(ErrorCode::kIo, fmt::format("{}: {}", name, strerror(errno)));
  std::string text;
  char part[1 << 16];
  while (const std::size_t count = std::fread(part, 1, sizeof part, file.get())) {
    text.append(part, count);
    if (text.size() > kMaxInputBytes) {
      return fail(ErrorCode::kIo,
                  fmt::format("{}: found more than {} bytes", name, kMaxInputBytes));
    }
  }
  if (std::ferror(file.get()) != 0) {
    return fail(ErrorCode::kIo, fmt::format("{}: {}", name, strerror(errno)));
  }
  return text;
}

void say(const std::string& line) { std::fputs((printable(line) + "\n").c_str(), stderr); }

std::string what_ran(const SessionStats& stats) {
  const AttentionReport& attention = stats.attention;
  return fmt::format("attention {} in {} on {}, layout {}; weights on {}, matrix library {}",
                     attention.kernel, attention.arith, attention.isa, attention.layout, stats.isa,
                     stats.matrix_library);
}

}  // namespace kvarto::cli
