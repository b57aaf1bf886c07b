#include "command.h"

namespace kvarto::cli {

std::span<const Command* const> commands() {
  static constexpr const Command* kAll[] = {
      &kInspectCommand, &kPlanCommand, &kModelsCommand, &kProfileCommand, &kBenchCommand,
  };
  return kAll;
}

}  // namespace kvarto::cli
