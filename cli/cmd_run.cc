// kvarto run: continues a text through the cache.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>

#include "command.h"
#include "kvarto/sampler.h"
#include "numbers.h"
#include "stop_signal.h"
#include "text_model.h"

namespace kvarto::cli {
namespace {

struct Asked {
  TextModelOptions model;
  std::string input;  // "-" = standard input
  std::optional<std::string> prompt;
  std::optional<std::string> file;
  bool parses_control = false;
  bool ignores_ends = false;
  std::optional<std::uint64_t> num_tokens, seed, top_k;
  std::optional<double> temperature, top_p, min_p;
};

// Why a text ended.
enum class End { kText, kCount, kContext, kStopped, kReaderGone };

// Of a prompt that does not follow -p.
const std::string& path_of(const Asked& asked) { return asked.file ? *asked.file : asked.input; }

Result<std::string> prompt_of(const Asked& asked) {
  if (!asked.input.empty() && asked.input != "-") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("unexpected argument \"{}\"; -p TEXT gives a prompt", asked.input));
  }
  const int num_given =
      (asked.prompt ? 1 : 0) + (asked.file ? 1 : 0) + (asked.input.empty() ? 0 : 1);
  if (num_given != 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("found {} prompts, expected one: -p TEXT, -f FILE, or - for standard "
                            "input; an empty one starts from BOS",
                            num_given));
  }
  return asked.prompt ? *asked.prompt : read_input(path_of(asked));
}

Result<std::vector<TokenId>> tokens_of(const Asked& asked, const std::string& prompt,
                                       const TextModel& model) {
  const Vocabulary& vocabulary = model.tokenizer.vocabulary();
  auto encoded =
      model.tokenizer.encode(prompt, {.adds_ends = false, .parses_control = asked.parses_control});
  if (!encoded.has_value()) {
    Error error = encoded.error();
    // What a file holds is input, what follows -p is usage.
    if (error.code == ErrorCode::kInvalidArgument && !asked.prompt) {
      error.code = ErrorCode::kCorruptData;
      error.message = fmt::format("{}: {}", input_name(path_of(asked)), error.message);
    }
    return tl::unexpected<Error>(std::move(error));
  }
  std::vector<TokenId> tokens = std::move(*encoded);
  if (tokens.empty() && !vocabulary.bos) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the prompt is empty, and {} has no token that begins a text",
                            vocabulary.name));
  }
  const bool wants_bos = tokens.empty() || vocabulary.adds_bos;
  if (wants_bos && vocabulary.bos && (tokens.empty() || tokens.front() != *vocabulary.bos)) {
    tokens.insert(tokens.begin(), *vocabulary.bos);
  }
  for (const TokenId token : tokens) {
    if (token < model.checkpoint.vocab_size()) continue;
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: found token {} for the prompt, but the model has {}",
                            vocabulary.name, token, model.checkpoint.vocab_size()));
  }
  if (tokens.size() > model.session.context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the prompt has {} tokens, but the context holds {}; -c N makes room",
                            tokens.size(), model.session.context));
  }
  return tokens;
}

// Greedy unless something about the choice is asked for.
SamplerOptions sampling_of(const Asked& asked) {
  const bool is_sampled = asked.seed || asked.top_k || asked.top_p || asked.min_p;
  SamplerOptions options;
  options.temperature = asked.temperature.value_or(is_sampled ? 1.0 : 0.0);
  options.top_k = asked.top_k.value_or(0);
  options.top_p = asked.top_p.value_or(1.0);
  options.min_p = asked.min_p.value_or(0.0);
  options.seed = asked.seed ? *asked.seed : std::random_device()();
  return options;
}

// Writes the text as it comes. A terminal is shown no character that it would obey.
class TextOutput {
 public:
  TextOutput() : is_terminal_(isatty(STDOUT_FILENO) == 1) {}

  // Whether the reader is still there. Errors: kIo.
  Result<bool> write(std::string_view text) {
    const std::string shown = is_terminal_ ? visible(text) : std::string(text);
    if (!shown.empty()) has_line_ = shown.back() != '\n';
    if (std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size() &&
        std::fflush(stdout) == 0) {
      return true;
    }
    if (errno == EPIPE) return false;
    return fail(ErrorCode::kIo, fmt::format("standard output: {}", std::strerror(errno)));
  }
  // Statistics begin on a line of their own.
  void finish() {
    if (is_terminal_ && has_line_) (void)write("\n");
  }

 private:
  static std::string visible(std::string_view text) {
    std::string out;
    while (!text.empty()) {
      const std::size_t plain = text.find_first_of("\n\t");
      out += printable(text.substr(0, plain));
      if (plain == std::string_view::npos) break;
      out += text[plain];
      text.remove_prefix(plain + 1);
    }
    return out;
  }

  bool is_terminal_;
  bool has_line_ = false;
};

struct Generation {
  std::uint64_t max_tokens = 0;
  bool ignores_ends = false;
  TokenDecoder::Place place{};
};

Result<End> generate(const TextModel& model, Session& session, Sampler& sampler,
                     std::span<const float> logits, const Generation& wanted) {
  TokenDecoder decoder(model.tokenizer, wanted.place);
  TextOutput out;
  // Rows of a model beyond its tokenizer stand for nothing.
  const std::size_t num_tokens = model.tokenizer.vocabulary().tokens.size();
  End end = End::kCount;
  for (std::uint64_t count = 0; count < wanted.max_tokens; ++count) {
    if (StopSignal::is_stopping()) {
      end = End::kStopped;
      break;
    }
    if (session.num_tokens() == session.context()) {
      end = End::kContext;
      break;
    }
    const TokenId token = sampler.sample(logits.first(std::min(num_tokens, logits.size())));
    if (model.tokenizer.is_end(token) && !wanted.ignores_ends) {
      end = End::kText;
      break;
    }
    KVARTO_TRY(const bool is_read, out.write(decoder.add(token)));
    if (!is_read) return End::kReaderGone;
    if (count + 1 == wanted.max_tokens) break;
    KVARTO_TRY(logits, session.feed(std::span(&token, 1)));
  }
  KVARTO_TRY(const bool is_read, out.write(decoder.finish()));
  out.finish();
  return is_read ? end : End::kReaderGone;
}

std::string reason(End end, const Session& session) {
  switch (end) {
    case End::kText:
      return "the text ended";
    case End::kCount:
      return "as many tokens as asked for";
    case End::kContext:
      return fmt::format("the context of {} tokens is full", session.context());
    case End::kStopped:
      return "stopped";
    case End::kReaderGone:
      return "nobody reads the output";
  }
  return "";
}

std::string rate(std::uint64_t tokens, double seconds, double attention_s) {
  if (tokens == 0) return "none";
  const auto count = static_cast<double>(tokens);
  return fmt::format("{} tokens in {}, {:.2f} tokens/s; attention {} a token", grouped(tokens),
                     short_seconds(seconds), count / seconds, short_seconds(attention_s / count));
}

void say_statistics(const Session& session, const SamplerOptions& sampling, End end) {
  const SessionStats stats = session.stats();
  say("prefill: " + rate(stats.prefill_tokens, stats.prefill_s, stats.prefill_attention_s));
  say("decode: " + rate(stats.decode_tokens, stats.decode_s, stats.decode_attention_s));
  say(fmt::format("cache: {} planned, {} used by {} of {} tokens; K {}, V {}",
                  exact_bytes(stats.planned_cache_bytes), exact_bytes(stats.used_cache_bytes),
                  grouped(session.num_tokens()), grouped(session.context()), stats.key_type,
                  stats.value_type));
  say("ran: " + what_ran(stats));
  if (sampling.temperature > 0) {
    say(fmt::format("sampling: temperature {}, top-k {}, top-p {}, min-p {}, seed {}",
                    sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
                    sampling.seed));
  }
  say(fmt::format("end: {}", reason(end, session)));
}

Result<ExitCode> run(const Asked& asked) {
  const SamplerOptions sampling = sampling_of(asked);
  KVARTO_TRY(Sampler sampler, Sampler::create(sampling));
  KVARTO_TRY(const std::string prompt, prompt_of(asked));
  KVARTO_TRY(TextModel model, open_text_model(asked.model));
  KVARTO_TRY(const std::vector<TokenId> tokens, tokens_of(asked, prompt, model));
  const StopSignal signal;
  KVARTO_TRY(Session session, Session::create(model.checkpoint, model.session));
  for (const std::string& note : model.notes) say("note: " + note);
  Progress progress;
  progress.start("run");
  FeedCallbacks callbacks;
  callbacks.on_progress = [&progress](std::uint64_t done, std::uint64_t all) {
    progress.update("prefill tokens", done, all);
  };
  KVARTO_TRY(const auto logits, feed_prompt(session, tokens, model.session.chunk_size, callbacks));
  progress.clear();
  End end = End::kStopped;
  if (!logits.empty()) {
    const Generation wanted{
        asked.num_tokens.value_or(session.context()), asked.ignores_ends,
        prompt.empty() ? TokenDecoder::Place::kStart : TokenDecoder::Place::kMidText};
    KVARTO_TRY(end, generate(model, session, sampler, logits, wanted));
  }
  say_statistics(session, sampling, end);
  return end == End::kStopped ? ExitCode::kStopped : ExitCode::kDone;
}

Runner declare(OptionSet& options) {
  auto asked = std::make_shared<Asked>();
  declare_text_model(options, &asked->model);
  options.section("text");
  options.positional("INPUT", &asked->input, "- reads the prompt from standard input");
  options.text("-p,--prompt", "TEXT", &asked->prompt, "the prompt; an empty one starts from BOS");
  options.text("-f,--file", "FILE", &asked->file, "read the prompt from a file");
  options.flag("--special", &asked->parses_control,
               "special tokens written in the prompt are tokens, not text");
  options.count("-n,--n-predict,--max-tokens", 0, &asked->num_tokens,
                "tokens to generate at most (default: until the text ends or the context is full)");
  options.flag("--ignore-eos", &asked->ignores_ends, "go on behind the end of the text");
  options.section("choice of tokens: filters in this order, then the temperature");
  options.count("--top-k", 0, &asked->top_k, "the N most likely ones; 0 is all (default 0)");
  options.real("--top-p", &asked->top_p,
               "the most likely ones that together reach this probability (default 1)");
  options.real("--min-p", &asked->min_p,
               "those at least this fraction as likely as the most likely one (default 0)");
  options.real("--temp,--temperature", &asked->temperature,
               "0 is greedy, the most likely one (default 0; 1 if any of --seed, --top-k, --top-p, "
               "--min-p is given)");
  options.count("--seed", 0, &asked->seed,
                "equal seeds give equal texts (default: another one each time, said at the end)");
  return [asked](Output&) { return run(*asked); };
}

}  // namespace

const Command kRunCommand{"run", "MODEL -p TEXT | -f FILE | - [options]",
                          "continue a text through the cache", declare};

}  // namespace kvarto::cli
