#include "command.h"

namespace kvarto::cli {

std::span<const Command* const> commands() {
  static constexpr const Command* kAll[] = {
      &kInspectCommand, &kPlanCommand, &kModelsCommand, &kProfileCommand,
      &kBenchCommand,   &kRunCommand,  &kEvalCommand,
  };
  return kAll;
}

}  // namespace kvarto::cli
