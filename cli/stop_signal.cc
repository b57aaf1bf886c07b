#include "stop_signal.h"

#include <csignal>
#include <cstdint>
#include <ctime>

namespace kvarto::cli {
namespace {

std::atomic<bool> g_is_stopping{false};

std::atomic<std::int64_t> g_first_stop_ms{0};

// The first asks for an early end, a second ends the program. Programs that start others, as
// `timeout` does, pass one signal on twice at once: that is one.
void stop(int signal) {
  constexpr std::int64_t kOneSignalMs = 100;
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const std::int64_t now_ms = std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000 + 1;
  if (!g_is_stopping.exchange(true)) {
    g_first_stop_ms = now_ms;
  } else if (now_ms - g_first_stop_ms > kOneSignalMs) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

StopSignal::StopSignal() { std::signal(SIGINT, stop); }

StopSignal::~StopSignal() { std::signal(SIGINT, SIG_DFL); }

const std::atomic<bool>& StopSignal::is_stopping() { return g_is_stopping; }

}  // namespace kvarto::cli
