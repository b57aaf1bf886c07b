// A model with its tokenizer, opened for text: what `run` and `eval` share.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvarto/result.h"
#include "kvarto/runtime.h"
#include "kvarto/tokenizer.h"
#include "model_options.h"
#include "options.h"
#include "progress.h"

namespace kvarto::cli {

struct TextModelOptions {
  ModelOptions model;     // its path and types alone
  std::string tokenizer;  // "" = the model's own
  std::optional<std::uint64_t> context, threads, micro_batch, block_size;
  std::string layout = "hardware";
  std::string arithmetic = "auto";
};

// MODEL, cache types, and how it runs.
void declare_text_model(OptionSet& options, TextModelOptions* asked);

struct TextModel {
  Checkpoint checkpoint;
  Tokenizer tokenizer;
  SessionOptions session;          // context is never 0
  std::vector<std::string> notes;  // what was assumed
};

// Opens both, and reads what session was asked for; allocates no cache.
// Errors: those of Checkpoint::open() and read_vocabulary(); kInvalidArgument for options that say
// what cannot be.
[[nodiscard]] Result<TextModel> open_text_model(const TextModelOptions& asked);

// Feeds a prompt in pieces, between which a stop is heeded. Returns the logits of its last token;
// empty ones after a stop. Requires: tokens is not empty.
[[nodiscard]] Result<std::span<const float>> feed_prompt(Session& session,
                                                         std::span<const TokenId> tokens,
                                                         std::uint64_t piece_tokens,
                                                         const FeedCallbacks& callbacks);

// What messages call it: "standard input" for "-".
[[nodiscard]] std::string input_name(const std::string& path);

// All of a file, or of standard input for "-". Errors: kIo.
[[nodiscard]] Result<std::string> read_input(const std::string& path);

// One line on standard error.
void say(const std::string& line);

// What the last layer's attention and the products with weights really ran on, in one line.
[[nodiscard]] std::string what_ran(const SessionStats& stats);

}  // namespace kvarto::cli
