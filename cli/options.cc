#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>
#include <utility>

#include "numbers.h"

namespace kvarto::cli {
namespace {

// What the help says of one option.
struct Described {
  std::string names;
  std::string value;
  std::string meaning;
  bool is_title = false;
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != separator) continue;
    parts.emplace_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

// Names like `-ctk`, which the engines have and CLI11 would read as `-c tk`.
bool is_long_short_name(const std::string& name) {
  return name.size() > 2 && name[0] == '-' && name[1] != '-';
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

template <typename T>
T value_or_throw(Result<T> parsed, const std::string& names) {
  if (!parsed.has_value()) throw CLI::ValidationError(names, parsed.error().message);
  return std::move(parsed).value();
}

}  // namespace

struct OptionSet::Parser {
  CLI::App app;
  std::string usage;
  std::string summary;
  std::vector<Described> described;
  std::vector<std::string> all_names;
  std::vector<std::string> valued_names;  // those that take a value
  // From `-ctk` to the long name of the same option.
  std::vector<std::pair<std::string, std::string>> rewrites;

  // Records the names and returns those that CLI11 can parse.
  std::string learn(const std::string& names, const std::string& value,
                    const std::string& meaning) {
    std::vector<std::string> parsable;
    std::vector<std::string> long_short;
    for (const std::string& name : split(names, ',')) {
      all_names.push_back(name);
      if (!value.empty()) valued_names.push_back(name);
      (is_long_short_name(name) ? long_short : parsable).push_back(name);
    }
    for (const std::string& name : long_short) rewrites.emplace_back(name, parsable.back());
    described.push_back({joined(split(names, ','), ", "), value, meaning});
    return joined(parsable, ",");
  }

  // Replaces `-ctk q8_0` and `-ctk=q8_0` by the long name.
  [[nodiscard]] std::string rewritten(const std::string& argument) const {
    const std::string name = argument.substr(0, argument.find('='));
    for (const auto& [from, to] : rewrites) {
      if (from == name) return to + argument.substr(name.size());
    }
    return argument;
  }

  // Appends an argument as CLI11 is to read it. `--prompt=` has a value, the empty one, which CLI11
  // would take for none and read the next word instead.
  void add_argument(const std::string& argument, std::vector<std::string>& out) const {
    std::string word = rewritten(argument);
    const bool is_empty_value = word.starts_with("--") && word.find('=') == word.size() - 1;
    if (is_empty_value) word.pop_back();
    const bool is_split = is_empty_value && std::find(valued_names.begin(), valued_names.end(),
                                                      word) != valued_names.end();
    out.push_back(is_empty_value && !is_split ? word + "=" : word);
    if (is_split) out.emplace_back();
  }

  [[nodiscard]] Error unknown(const std::string& argument) const {
    if (argument.empty() || argument[0] != '-') {
      return {ErrorCode::kInvalidArgument, fmt::format("unexpected argument \"{}\"", argument)};
    }
    const std::string name = argument.substr(0, argument.find('='));
    std::string message = fmt::format("unknown option {}", name);
    const std::vector<std::string> candidates = nearest(name, all_names);
    if (!candidates.empty()) message += fmt::format("; nearest: {}", joined(candidates, ", "));
    return {ErrorCode::kInvalidArgument, message};
  }
};

OptionSet::OptionSet(std::string usage, std::string summary) : parser_(std::make_unique<Parser>()) {
  parser_->usage = std::move(usage);
  parser_->summary = std::move(summary);
  parser_->app.set_help_flag("");
}

OptionSet::~OptionSet() = default;

void OptionSet::positional(const std::string& name, std::string* target,
                           const std::string& meaning) {
  parser_->described.push_back({"[" + name + "]", "", meaning});
  parser_->app.add_option(name, *target);
}

void OptionSet::section(const std::string& title) {
  parser_->described.push_back({title, "", "", true});
}

void OptionSet::flag(const std::string& names, bool* target, const std::string& meaning) {
  parser_->app.add_flag(parser_->learn(names, "", meaning), *target);
}

void OptionSet::text(const std::string& names, const std::string& value, std::string* target,
                     const std::string& meaning) {
  parser_->app.add_option(parser_->learn(names, value, meaning), *target);
}

void OptionSet::text(const std::string& names, const std::string& value,
                     std::optional<std::string>* target, const std::string& meaning) {
  parser_->app.add_option_function<std::string>(
      parser_->learn(names, value, meaning), [target](const std::string& text) { *target = text; });
}

void OptionSet::count(const std::string& names, std::uint64_t min,
                      std::optional<std::uint64_t>* target, const std::string& meaning) {
  parser_->app.add_option_function<std::string>(
      parser_->learn(names, "N", meaning), [names, min, target](const std::string& text) {
        const std::uint64_t number = value_or_throw(parse_count(text), names);
        if (number < min) {
          throw CLI::ValidationError(names,
                                     fmt::format("found {}, expected at least {}", number, min));
        }
        *target = number;
      });
}

void OptionSet::size(const std::string& names, std::optional<std::uint64_t>* target,
                     const std::string& meaning) {
  parser_->app.add_option_function<std::string>(parser_->learn(names, "SIZE", meaning),
                                                [names, target](const std::string& text) {
                                                  *target = value_or_throw(parse_size(text), names);
                                                });
}

void OptionSet::fraction(const std::string& names, std::optional<double>* target,
                         const std::string& meaning) {
  parser_->app.add_option_function<std::string>(
      parser_->learn(names, "X", meaning), [names, target](const std::string& text) {
        const double number = value_or_throw(parse_real(text), names);
        if (number <= 0.0 || number > 1.0) {
          throw CLI::ValidationError(
              names, fmt::format("found {}, expected a number above 0 and at most 1", text));
        }
        *target = number;
      });
}

void OptionSet::real(const std::string& names, std::optional<double>* target,
                     const std::string& meaning) {
  parser_->app.add_option_function<std::string>(
      parser_->learn(names, "X", meaning), [names, target](const std::string& text) {
        const double number = value_or_throw(parse_real(text), names);
        if (!(number >= 0.0)) {
          throw CLI::ValidationError(names,
                                     fmt::format("found {}, expected a number from 0 on", text));
        }
        *target = number;
      });
}

void OptionSet::list(const std::string& names, const std::string& value,
                     std::vector<std::string>* target, const std::string& meaning) {
  parser_->app
      .add_option_function<std::vector<std::string>>(
          parser_->learn(names, value, meaning),
          [names, target](const std::vector<std::string>& given) {
            for (const std::string& words : given) {
              for (std::string& word : split(words, ',')) {
                if (word.empty()) {
                  throw CLI::ValidationError(
                      names, fmt::format("found \"{}\", expected words with one comma between them",
                                         words));
                }
                target->push_back(std::move(word));
              }
            }
          })
      ->allow_extra_args(false)
      ->take_all();
}

Result<OptionSet::Outcome> OptionSet::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed;  // the order that CLI11 takes
  bool is_options_end = false;
  for (const std::string& argument : arguments) {
    if (!is_options_end && (argument == "--help" || argument == "-h")) return Outcome::kHelp;
    is_options_end = is_options_end || argument == "--";
    if (is_options_end) {
      reversed.push_back(argument);
    } else {
      parser_->add_argument(argument, reversed);
    }
  }
  std::reverse(reversed.begin(), reversed.end());
  try {
    parser_->app.allow_extras();
    parser_->app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kInvalidArgument, error.what());
  }
  std::vector<std::string> extras = parser_->app.remaining();
  // CLI11 counts the mark that ends the options among what it could not place.
  if (const auto mark = std::find(extras.begin(), extras.end(), "--"); mark != extras.end()) {
    extras.erase(mark);
  }
  if (!extras.empty()) return tl::unexpected<Error>(parser_->unknown(extras.front()));
  return Outcome::kParsed;
}

std::string OptionSet::help() const {
  std::string text = fmt::format("{}\n\nusage: kvarto {}\n\n", parser_->summary, parser_->usage);
  for (const Described& option : parser_->described) {
    if (option.is_title) {
      text += fmt::format("\n{}:\n", option.names);
      continue;
    }
    const std::string left =
        option.value.empty() ? option.names : option.names + " " + option.value;
    text += fmt::format("  {}\n      {}\n", left, option.meaning);
  }
  return text;
}

std::vector<std::string> nearest(const std::string& word,
                                 const std::vector<std::string>& candidates) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    // Beyond half of its letters, a word is no longer a slip of the fingers.
    const bool is_near = distance <= std::max<std::size_t>(2, word.size() / 2);
    if (is_near || candidate.rfind(word, 0) == 0) ranked.emplace_back(distance, candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> best;
  for (const auto& [distance, candidate] : ranked) {
    if (best.size() < 3) best.push_back(candidate);
  }
  return best;
}

}  // namespace kvarto::cli
