// Ctrl-C as a wish: the first ends a command early, which then reports what there is.

#pragma once

#include <atomic>

namespace kvarto::cli {

// Catches the signal while it lives. At most one at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Whether it came; false before the first.
  [[nodiscard]] static const std::atomic<bool>& is_stopping();
};

}  // namespace kvarto::cli
