// What one run of a profile reports, and what it verifies, from the loop after its last step.

#pragma once

#include "kvarto/plan.h"
#include "kvarto/profile.h"
#include "profile/profile_loop.h"

namespace kvarto {

struct RunPlans {
  const Plan& allocation;  // of engine kvarto: all that the loop's cache holds
  const Plan& ideal;       // of the layers that ran
};

// Destroys the contents of the cache. Errors: those of cache and runner.
[[nodiscard]] Status report_run(const ProfileRequest& request, ProfileLoop& loop,
                                const RunPlans& plans, ProfileRun& run);

}  // namespace kvarto
