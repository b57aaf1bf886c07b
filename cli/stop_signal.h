// Ctrl-C as a wish: the first ends a command early, which then reports what there is.

#pragma once

#include <atomic>
#include <csignal>
#include <thread>

namespace kvarto::cli {

// Takes the signal while it lives, which must be from before the first thread of a command is
// started. At most one at a time.
//
// A thread of its own waits for the signal and no handler runs on any other: the products that
// oneDNN 2.6 generates keep what they work with below the stack pointer, beyond what a handler's
// frame leaves alone, and free what is not theirs after one has run.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Whether it came; false before the first.
  [[nodiscard]] static const std::atomic<bool>& is_stopping();

 private:
  void wait_for_signals() const;

  sigset_t mask_before_{};
  std::atomic<bool> is_over_{false};
  std::thread waiting_;
};

}  // namespace kvarto::cli
