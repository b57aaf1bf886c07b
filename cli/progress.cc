#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace kvarto::cli {
namespace {

// Short commands stay silent, and a terminal is not flooded.
constexpr std::chrono::milliseconds kFirstLineAfter{1000};
constexpr std::chrono::milliseconds kBetweenLines{200};

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Progress::Progress() : is_shown_(isatty(STDERR_FILENO) == 1), start_(Clock::now()) {}

void Progress::start(std::string what) {
  what_ = std::move(what);
  phase_.clear();
}

void Progress::update(std::string_view phase, std::uint64_t done, std::uint64_t all) {
  if (!is_shown_) return;
  const Clock::time_point now = Clock::now();
  if (phase != phase_) {
    phase_ = phase;
    phase_start_ = now;
  }
  if (now - start_ < kFirstLineAfter || now - last_line_ < kBetweenLines) return;
  last_line_ = now;
  std::string line = fmt::format("{}: {} {} of {}, {:.0f} s elapsed", what_, phase, done, all,
                                 seconds(now - start_));
  if (done > 0 && done <= all) {
    line += fmt::format(
        ", about {:.0f} s of {} remain",
        seconds(now - phase_start_) * static_cast<double>(all - done) / static_cast<double>(done),
        phase);
  }
  std::fputs(fmt::format("\r{}\x1b[K", line).c_str(), stderr);
  std::fflush(stderr);
  has_line_ = true;
}

void Progress::clear() {
  if (!has_line_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  has_line_ = false;
}

}  // namespace kvarto::cli
