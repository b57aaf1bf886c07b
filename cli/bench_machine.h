// kvarto bench machine: what this machine reads and computes at most.

#pragma once

#include <string>
#include <vector>

#include "kvarto/result.h"
#include "output.h"

namespace kvarto::cli {

struct MachineAsked {
  std::vector<std::string> threads;
  std::string seconds = "1";
  bool is_json = false;
};

// Errors: kInvalidArgument for words that are no numbers; those of measure_machine().
[[nodiscard]] Status run_machine_bench(const MachineAsked& asked, Output& out);

}  // namespace kvarto::cli
