// The answer of `kvarto profile`, gathered before it is printed as text, JSON or a trace.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvarto/profile.h"
#include "output.h"

namespace kvarto::cli {

// An architecture that cannot run yet, as planned.
struct PlannedRow {
  std::string architecture;
  std::string type;
  std::uint64_t total_bytes = 0;
  std::uint64_t read_bytes_per_step = 0;
  std::string reason;  // why it does not run
};

struct ProfileReport {
  std::string model;
  std::uint32_t model_layers = 0;
  std::uint64_t context = 0;  // tokens of each sequence, as asked for
  std::uint64_t num_sequences = 1;
  std::uint64_t num_steps = 0;
  bool is_default_context = false;
  bool is_partial = false;
  bool is_brief = false;  // text: the comparison and what was verified alone
  std::vector<ProfileRun> runs;
  std::vector<PlannedRow> planned;
  std::vector<std::string> notes;
};

void print_profile_text(const ProfileReport& report, Output& out);
void print_profile_json(const ProfileReport& report, Output& out);
// A document of the Trace Event Format, for chrome://tracing and Perfetto.
[[nodiscard]] std::string chrome_trace(const ProfileReport& report);

}  // namespace kvarto::cli
