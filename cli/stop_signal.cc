#include "stop_signal.h"

#include <chrono>

namespace kvarto::cli {
namespace {

std::atomic<bool> g_is_stopping{false};

sigset_t interrupt_alone() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  return signals;
}

void end_program(const sigset_t& interrupt) {
  std::signal(SIGINT, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
  std::raise(SIGINT);
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t interrupt = interrupt_alone();
  pthread_sigmask(SIG_BLOCK, &interrupt, &mask_before_);
  waiting_ = std::thread([this] { wait_for_signals(); });
}

StopSignal::~StopSignal() {
  is_over_ = true;
  pthread_kill(waiting_.native_handle(), SIGINT);
  waiting_.join();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

// The first asks for an early end, a second ends the program. Programs that start others, as
// `timeout` does, pass one signal on twice at once: that is one.
void StopSignal::wait_for_signals() const {
  constexpr std::chrono::milliseconds kOneSignal{100};
  const sigset_t interrupt = interrupt_alone();
  std::chrono::steady_clock::time_point first;
  for (int signal = 0; sigwait(&interrupt, &signal) == 0 && !is_over_;) {
    const auto now = std::chrono::steady_clock::now();
    if (!g_is_stopping.exchange(true)) {
      first = now;
    } else if (now - first > kOneSignal) {
      end_program(interrupt);
    }
  }
}

const std::atomic<bool>& StopSignal::is_stopping() { return g_is_stopping; }

}  // namespace kvarto::cli
