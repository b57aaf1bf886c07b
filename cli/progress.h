// Progress of long commands: one line on standard error, rewritten in place, on a terminal alone.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvarto::cli {

// Not thread-safe; one owner.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Begins what is shown as `what`.
  void start(std::string what);
  // `done` of `all` of a phase are over. The remaining time is that of the phase.
  void update(std::string_view phase, std::uint64_t done, std::uint64_t all);
  // Removes the line.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool is_shown_;
  bool has_line_ = false;
  std::string what_;
  std::string phase_;
  Clock::time_point start_;
  Clock::time_point phase_start_;
  Clock::time_point last_line_;
};

}  // namespace kvarto::cli
