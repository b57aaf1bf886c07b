// One command of the tool. A command lives in one file cmd_<name>.cc, which declares its options
// and runs; commands.cc lists them all.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "kvarto/result.h"
#include "options.h"
#include "output.h"

namespace kvarto::cli {

enum class ExitCode : std::uint8_t {
  kDone = 0,
  kFinding = 1,    // a finding or a failed check
  kUsage = 2,      // wrong usage
  kBadInput = 3,   // input that cannot be read or is not valid
  kStopped = 130,  // by Ctrl-C: what a shell says of programs that the signal ends
};

using Runner = std::function<Result<ExitCode>(Output& out)>;

struct Command {
  std::string_view name;
  std::string_view arguments;  // as in the usage line
  std::string_view summary;    // one line
  // Declares the options; returns what runs once they are parsed.
  Runner (*declare)(OptionSet& options);
};

// All commands, in the order of the help.
[[nodiscard]] std::span<const Command* const> commands();

extern const Command kInspectCommand;
extern const Command kPlanCommand;
extern const Command kModelsCommand;
extern const Command kProfileCommand;
extern const Command kBenchCommand;
extern const Command kRunCommand;
extern const Command kEvalCommand;

}  // namespace kvarto::cli
