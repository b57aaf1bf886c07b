// The trained models of the shared collection, and what others computed with them.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "kvarto/runtime.h"
#include "samples/folders.h"

namespace kvarto::samples {

struct Story {
  std::vector<std::uint32_t> tokens;
  double nll_sum = 0;
  std::vector<double> nll;          // of tokens 1, 2, ...; of some stories alone
  std::vector<double> logits_last;  // of the first alone
};

// The stories of golden_stories260K.json; empty without the collection.
[[nodiscard]] inline std::vector<Story> golden_stories() {
  std::vector<Story> stories;
  const auto folder = shared_folder();
  if (!folder) return stories;
  std::ifstream file(*folder / "models/stories260K/golden_stories260K.json");
  const auto json = nlohmann::json::parse(file);
  for (const auto& entry : json.at("stories")) {
    Story story;
    story.tokens = entry.at("tokens").get<std::vector<std::uint32_t>>();
    story.nll_sum = entry.at("nll_sum").get<double>();
    if (entry.contains("nll")) story.nll = entry.at("nll").get<std::vector<double>>();
    if (entry.contains("logits_last")) {
      story.logits_last = entry.at("logits_last").get<std::vector<double>>();
    }
    stories.push_back(std::move(story));
  }
  return stories;
}

// A session over a model of the collection.
[[nodiscard]] inline Session open_session(const std::filesystem::path& path,
                                          const SessionOptions& options) {
  const auto checkpoint = Checkpoint::open(path.string());
  if (!checkpoint) throw std::runtime_error(checkpoint.error().message);
  auto session = Session::create(*checkpoint, options);
  if (!session) throw std::runtime_error(session.error().message);
  return std::move(session).value();
}

// Losses of tokens 1, 2, ... of one story, in nats.
[[nodiscard]] inline std::vector<double> losses(Session& session,
                                                const std::vector<std::uint32_t>& tokens) {
  std::vector<double> result;
  session.clear();
  FeedCallbacks callbacks;
  callbacks.on_logits = [&](std::uint64_t i, std::span<const float> logits) {
    if (i + 1 < tokens.size()) result.push_back(token_loss(logits, tokens[i + 1]));
  };
  const auto fed = session.feed(tokens, callbacks);
  if (!fed) throw std::runtime_error(fed.error().message);
  return result;
}

// Mean loss over the first `num_stories` stories.
[[nodiscard]] inline double mean_loss(Session& session, const std::vector<Story>& stories,
                                      std::size_t num_stories) {
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < num_stories; ++i) {
    for (const double loss : losses(session, stories[i].tokens)) sum += loss;
    count += stories[i].tokens.size() - 1;
  }
  return sum / static_cast<double>(count);
}

[[nodiscard]] inline std::uint32_t largest(std::span<const float> logits) {
  return static_cast<std::uint32_t>(std::max_element(logits.begin(), logits.end()) -
                                    logits.begin());
}

// The text of tokens by the pieces of a GGUF file: "▁" is a space, "<0x0A>" a byte.
[[nodiscard]] inline std::string text_of(const std::filesystem::path& gguf,
                                         const std::vector<std::uint32_t>& tokens) {
  const auto file = open_gguf(gguf.string());
  const auto pieces = gguf_strings(*file->parts.front().header.find("tokenizer.ggml.tokens"));
  std::string text;
  for (const std::uint32_t token : tokens) {
    const std::string piece((*pieces)[token]);
    if (piece.size() == 6 && piece.starts_with("<0x")) {
      text += static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
      continue;
    }
    constexpr std::string_view kSpace = "\xE2\x96\x81";
    for (std::size_t at = 0; at < piece.size();) {
      const bool is_space = piece.compare(at, kSpace.size(), kSpace) == 0;
      text += is_space ? ' ' : piece[at];
      at += is_space ? kSpace.size() : 1;
    }
  }
  return text;
}

}  // namespace kvarto::samples
