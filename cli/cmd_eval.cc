// kvarto eval: how well a model predicts a text through the cache.

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "numbers.h"
#include "stop_signal.h"
#include "text_model.h"

namespace kvarto::cli {
namespace {

struct Asked {
  TextModelOptions model;
  std::string text;
  std::optional<std::uint64_t> max_texts, max_tokens;
  bool is_json = false;
};

// Tokens that one empty cache sees, from the first on.
struct Windows {
  std::vector<std::vector<TokenId>> all;
  std::uint64_t num_texts = 0;
  std::uint64_t num_tokens = 0;  // of the texts, those that were left out as well
  std::uint64_t num_cut = 0;     // texts of a list that the context does not hold
};

struct Losses {
  double sum = 0;
  double sum_of_squares = 0;
  std::uint64_t count = 0;
  std::uint64_t num_windows = 0;
  double seconds = 0;
  bool is_partial = false;
  SessionStats stats;  // at the end

  [[nodiscard]] double mean() const { return sum / static_cast<double>(count); }
  [[nodiscard]] double standard_error() const {
    if (count < 2) return 0;
    const double n = static_cast<double>(count);
    const double variance = (sum_of_squares - sum * sum / n) / (n - 1);
    return std::sqrt(std::max(0.0, variance) / n);
  }
};

// The texts of a file: those of a JSON list, or all of it as one.
struct Texts {
  std::vector<std::string> all;
  bool is_list = false;
};
Result<Texts> texts_of(const std::string& path) {
  KVARTO_TRY(std::string content, read_input(path));
  if (!path.ends_with(".json")) return Texts{{std::move(content)}, false};
  Texts texts{{}, true};
  const auto json = nlohmann::json::parse(content, nullptr, false);
  if (!json.is_array()) {
    return fail(ErrorCode::kCorruptData, fmt::format("{}: expected a JSON list of texts", path));
  }
  for (const auto& text : json) {
    if (!text.is_string()) {
      return fail(ErrorCode::kCorruptData,
                  fmt::format("{}: entry {}: expected a text", path, texts.all.size()));
    }
    texts.all.push_back(text.get<std::string>());
  }
  return texts;
}

// Cuts the tokens of a text into windows, each after BOS where the vocabulary begins texts so. Of a
// text of a list, the first window alone counts.
void add_windows(const std::vector<TokenId>& tokens, std::optional<TokenId> bos,
                 std::uint64_t context, bool is_list, Windows* windows) {
  const std::size_t room = context - (bos ? 1 : 0);
  for (std::size_t at = 0; at < tokens.size(); at += room) {
    if (is_list && at > 0) {
      ++windows->num_cut;
      return;
    }
    std::vector<TokenId> window;
    if (bos) window.push_back(*bos);
    const std::size_t end = std::min(tokens.size(), at + room);
    window.insert(window.end(), tokens.begin() + static_cast<std::ptrdiff_t>(at),
                  tokens.begin() + static_cast<std::ptrdiff_t>(end));
    // Of a single token nothing is predicted.
    if (window.size() > 1) windows->all.push_back(std::move(window));
  }
}

Result<Windows> windows_of(const Asked& asked, const TextModel& model) {
  const Vocabulary& vocabulary = model.tokenizer.vocabulary();
  const std::optional<TokenId> bos = vocabulary.adds_bos ? vocabulary.bos : std::nullopt;
  KVARTO_TRY(const Texts texts, texts_of(asked.text));
  if (model.session.context < 2) {
    return fail(ErrorCode::kInvalidArgument, "-c: found 1, expected at least 2");
  }
  Windows windows;
  for (const std::string& text : texts.all) {
    if (asked.max_texts && windows.num_texts == *asked.max_texts) break;
    auto tokens = model.tokenizer.encode(text, {.adds_ends = false});
    if (!tokens.has_value()) {
      return fail(ErrorCode::kCorruptData,
                  fmt::format("{}: {}", asked.text, tokens.error().message));
    }
    ++windows.num_texts;
    windows.num_tokens += tokens->size();
    if (asked.max_tokens && tokens->size() > *asked.max_tokens) {
      tokens->resize(static_cast<std::size_t>(*asked.max_tokens));
    }
    for (const TokenId token : *tokens) {
      if (token < model.checkpoint.vocab_size()) continue;
      return fail(ErrorCode::kCorruptData,
                  fmt::format("{}: found token {} for the text, but the model has {}",
                              vocabulary.name, token, model.checkpoint.vocab_size()));
    }
    add_windows(*tokens, bos, model.session.context, texts.is_list, &windows);
  }
  if (windows.all.empty()) {
    return fail(ErrorCode::kCorruptData,
                fmt::format("{}: found no text of two tokens, of which one could be predicted",
                            asked.text));
  }
  return windows;
}

Result<Losses> losses_of(const Windows& windows, const TextModel& model, Session& session) {
  using Clock = std::chrono::steady_clock;
  std::uint64_t num_all = 0;
  for (const auto& window : windows.all) num_all += window.size();
  Progress progress;
  progress.start("eval");
  Losses losses;
  std::uint64_t num_before = 0;
  const Clock::time_point start = Clock::now();
  for (const std::vector<TokenId>& window : windows.all) {
    FeedCallbacks callbacks;
    callbacks.on_logits = [&](std::uint64_t index, std::span<const float> logits) {
      if (index + 1 >= window.size()) return;
      const double loss = token_loss(logits, window[static_cast<std::size_t>(index) + 1]);
      losses.sum += loss;
      losses.sum_of_squares += loss * loss;
      ++losses.count;
    };
    callbacks.on_progress = [&](std::uint64_t done, std::uint64_t) {
      progress.update("tokens", num_before + done, num_all);
    };
    session.clear();
    KVARTO_TRY(const auto last, feed_prompt(session, window, model.session.chunk_size, callbacks));
    num_before += window.size();
    losses.is_partial = last.empty();
    if (losses.is_partial || StopSignal::is_stopping()) {
      losses.is_partial |= num_before < num_all;
      break;
    }
    ++losses.num_windows;
  }
  losses.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  losses.stats = session.stats();
  return losses;
}

void print_json(const Asked& asked, const TextModel& model, const Windows& windows,
                const Losses& losses, Output& out) {
  const SessionStats& stats = losses.stats;
  nlohmann::ordered_json json;
  json["schema"] = "kvarto.eval/1";
  json["model"] = {{"name", model.checkpoint.model().name},
                   {"family", model.checkpoint.family()},
                   {"weight_bytes", model.checkpoint.weight_bytes()}};
  json["text"] = {{"path", asked.text},
                  {"texts", windows.num_texts},
                  {"tokens", windows.num_tokens},
                  {"texts_cut", windows.num_cut}};
  json["context"] = model.session.context;
  json["cache"] = {{"key", stats.key_type},
                   {"value", stats.value_type},
                   {"planned_bytes", stats.planned_cache_bytes},
                   {"allocated_bytes", stats.allocated_cache_bytes},
                   {"peak_bytes", stats.peak_cache_bytes}};
  json["kernel"] = stats.attention.kernel;
  json["isa"] = stats.attention.isa;
  json["layout"] = stats.attention.layout;
  json["arith"] = stats.attention.arith;
  json["threads"] = model.session.num_threads;
  json["windows"] = windows.all.size();
  json["predicted_tokens"] = losses.count;
  json["mean_nll"] = losses.mean();
  json["mean_nll_standard_error"] = losses.standard_error();
  json["perplexity"] = std::exp(losses.mean());
  json["seconds"] = losses.seconds;
  json["tokens_per_s"] = static_cast<double>(stats.prefill_tokens) / losses.seconds;
  json["partial"] = losses.is_partial;
  json["notes"] = model.notes;
  out.verbatim(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void print_text(const TextModel& model, const Windows& windows, const Losses& losses, Output& out) {
  const SessionStats& stats = losses.stats;
  out.heading(fmt::format("perplexity {:.4f}", std::exp(losses.mean())));
  out.line(fmt::format("  {:.6f} +- {:.6f} nats a token, {} tokens predicted", losses.mean(),
                       losses.standard_error(), grouped(losses.count)));
  out.line(
      fmt::format("  {} of at most {} tokens from {}",
                  windows.all.size() == 1 ? "1 window" : grouped(windows.all.size()) + " windows",
                  grouped(model.session.context),
                  windows.num_texts == 1 ? "1 text" : grouped(windows.num_texts) + " texts"));
  out.line(fmt::format("  cache: K {}, V {}, {} planned, {} used at most", stats.key_type,
                       stats.value_type, exact_bytes(stats.planned_cache_bytes),
                       exact_bytes(stats.peak_cache_bytes)));
  out.line("  ran: " + what_ran(stats));
  out.line(fmt::format("  {} in {}, {:.1f} tokens/s", grouped(stats.prefill_tokens),
                       short_seconds(losses.seconds),
                       static_cast<double>(stats.prefill_tokens) / losses.seconds));
  if (windows.num_cut > 0) {
    out.note(fmt::format("{} texts are longer than the context and end with it", windows.num_cut));
  }
  if (losses.is_partial) out.note("stopped before the end of the text");
  for (const std::string& note : model.notes) out.note(note);
}

Result<ExitCode> run(const Asked& asked, Output& out) {
  if (asked.text.empty()) {
    return fail(ErrorCode::kInvalidArgument, "no text: --text FILE names one, - standard input");
  }
  KVARTO_TRY(TextModel model, open_text_model(asked.model));
  KVARTO_TRY(const Windows windows, windows_of(asked, model));
  const StopSignal signal;
  KVARTO_TRY(Session session, Session::create(model.checkpoint, model.session));
  KVARTO_TRY(const Losses losses, losses_of(windows, model, session));
  if (losses.count == 0) {
    say("stopped before the first token was predicted");
    return ExitCode::kStopped;
  }
  if (asked.is_json) {
    print_json(asked, model, windows, losses, out);
  } else {
    print_text(model, windows, losses, out);
  }
  return losses.is_partial ? ExitCode::kStopped : ExitCode::kDone;
}

Runner declare(OptionSet& options) {
  auto asked = std::make_shared<Asked>();
  declare_text_model(options, &asked->model);
  options.section("text");
  options.text("--text", "FILE", &asked->text,
               "UTF-8, cut into windows of the context; a .json list of texts, each by itself and "
               "as far as the context holds it; or -");
  options.count("--max-texts", 1, &asked->max_texts, "the first N of a list");
  options.count("--max-tokens", 2, &asked->max_tokens, "the first N tokens of each text");
  options.flag("--json", &asked->is_json, "one JSON document on standard output");
  return [asked](Output& out) { return run(*asked, out); };
}

}  // namespace

const Command kEvalCommand{"eval", "MODEL --text FILE [options]",
                           "perplexity of a text through the cache", declare};

}  // namespace kvarto::cli
