// The `kvarto` tool: finds the command, parses its options, runs it, reports errors.

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "command.h"

namespace kvarto::cli {
namespace {

bool wants_color() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_color == nullptr || *no_color == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb" && isatty(STDOUT_FILENO) == 1;
}

std::string help() {
  std::string text =
      "Kvarto plans and explains the KV cache of LLM inference.\n\n"
      "usage: kvarto COMMAND [arguments]\n\ncommands:\n";
  for (const Command* command : commands()) {
    text += fmt::format("  {:<8}  {}\n", command->name, command->summary);
  }
  text +=
      "\n`kvarto COMMAND --help` lists the options; `kvarto --version` prints the version.\n"
      "Exit codes: 0 done; 1 a finding or a failed check; 2 wrong usage; 3 input that cannot be\n"
      "read or is not valid; 130 stopped by Ctrl-C. NO_COLOR is honoured.\n";
  return text;
}

const Command* find_command(std::string_view name) {
  for (const Command* command : commands()) {
    if (command->name == name) return command;
  }
  return nullptr;
}

ExitCode exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:  // asked for by an option; what a file asks for: as_input_error()
      return ExitCode::kUsage;
    case ErrorCode::kIo:
    case ErrorCode::kCorruptData:
      return ExitCode::kBadInput;
    case ErrorCode::kOutOfMemory:
      return ExitCode::kFinding;
  }
  return ExitCode::kFinding;
}

ExitCode report(const Error& error) {
  std::fputs(fmt::format("kvarto: error: {}\n", printable(error.message)).c_str(), stderr);
  return exit_code_of(error.code);
}

ExitCode finish(Output& out, ExitCode code) {
  if (const Status written = out.write(); !written.has_value()) {
    report(written.error());
    return ExitCode::kFinding;
  }
  return code;
}

Error unknown_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command* command : commands()) names.emplace_back(command->name);
  std::string message = fmt::format("unknown command \"{}\"", name);
  const std::vector<std::string> candidates = nearest(name, names);
  message += candidates.empty() ? "; see kvarto --help"
                                : fmt::format("; nearest: {}", fmt::join(candidates, ", "));
  return {ErrorCode::kInvalidArgument, message};
}

ExitCode run_command(const Command& command, const std::vector<std::string>& arguments,
                     Output& out) {
  OptionSet options(fmt::format("{} {}", command.name, command.arguments),
                    std::string(command.summary));
  const Runner run = command.declare(options);
  const Result<OptionSet::Outcome> parsed = options.parse(arguments);
  if (!parsed.has_value()) return report(parsed.error());
  if (*parsed == OptionSet::Outcome::kHelp) {
    out.verbatim(options.help());
    return finish(out, ExitCode::kDone);
  }
  const Result<ExitCode> done = run(out);
  if (!done.has_value()) return report(done.error());
  return finish(out, *done);
}

ExitCode run(std::vector<std::string> arguments) {
  Output out(wants_color());
  if (arguments.empty()) {
    std::fputs(help().c_str(), stderr);
    return ExitCode::kUsage;
  }
  const std::string first = arguments.front();
  arguments.erase(arguments.begin());
  if (first == "--version" || first == "-V") {
    out.verbatim("kvarto " KVARTO_VERSION "\n");
    return finish(out, ExitCode::kDone);
  }
  if (first == "--help" || first == "-h" || (first == "help" && arguments.empty())) {
    out.verbatim(help());
    return finish(out, ExitCode::kDone);
  }
  const bool is_help_of = first == "help";
  const std::string name = is_help_of ? arguments.front() : first;
  const Command* command = find_command(name);
  if (command == nullptr) return report(unknown_command(name));
  if (is_help_of) arguments = {"--help"};
  return run_command(*command, arguments, out);
}

}  // namespace
}  // namespace kvarto::cli

int main(int argc, char** argv) {
  // A reader that has gone away shows as a failed write instead of a signal.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return static_cast<int>(kvarto::cli::run({argv + (argc > 0 ? 1 : 0), argv + argc}));
  } catch (const std::exception& error) {
    // Only memory that cannot be allocated comes here.
    std::fprintf(stderr, "kvarto: error: %s\n", error.what());
    return static_cast<int>(kvarto::cli::ExitCode::kFinding);
  }
}
