// The options of one command, free of the parser behind them: CLI11 takes ten seconds a file to
// compile, so only options.cc includes it.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvarto/result.h"

namespace kvarto::cli {

// Names are written as users type them, separated by commas: "-ctk,--cache-type-k". Targets must
// outlive parse(). A target keeps its value if its option is absent. Not thread-safe; one owner.
class OptionSet {
 public:
  // `usage` follows the program's name in the help: "plan MODEL [options]".
  OptionSet(std::string usage, std::string summary);
  ~OptionSet();
  OptionSet(const OptionSet&) = delete;
  OptionSet& operator=(const OptionSet&) = delete;

  // An argument without a name that may be left out.
  void positional(const std::string& name, std::string* target, const std::string& meaning);

  // Starts a titled part of the help.
  void section(const std::string& title);
  void flag(const std::string& names, bool* target, const std::string& meaning);
  void text(const std::string& names, const std::string& value, std::string* target,
            const std::string& meaning);
  // The same, for texts that may be empty.
  void text(const std::string& names, const std::string& value, std::optional<std::string>* target,
            const std::string& meaning);
  // A whole number of at least `min`.
  void count(const std::string& names, std::uint64_t min, std::optional<std::uint64_t>* target,
             const std::string& meaning);
  // "24GiB", "24GB", "512MiB" or plain bytes.
  void size(const std::string& names, std::optional<std::uint64_t>* target,
            const std::string& meaning);
  // A number in (0, 1].
  void fraction(const std::string& names, std::optional<double>* target,
                const std::string& meaning);
  // A number of at least 0.
  void real(const std::string& names, std::optional<double>* target, const std::string& meaning);
  // Words separated by commas; the option may be repeated.
  void list(const std::string& names, const std::string& value, std::vector<std::string>* target,
            const std::string& meaning);

  enum class Outcome : std::uint8_t { kParsed, kHelp };
  // `arguments` without the program's and the command's name. Errors: kInvalidArgument, with the
  // nearest candidates for an unknown option.
  [[nodiscard]] Result<Outcome> parse(const std::vector<std::string>& arguments);

  [[nodiscard]] std::string help() const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

// The words of `candidates` nearest to `word`, at most three, best first; none if all are far.
[[nodiscard]] std::vector<std::string> nearest(const std::string& word,
                                               const std::vector<std::string>& candidates);

}  // namespace kvarto::cli
