// The inverse questions: what fits into a given memory.

#include <algorithm>

#include "kvarto/plan.h"

namespace kvarto {
namespace {

// The largest value in [0, max] of which `fits` says yes, if it says yes to all smaller ones. Even
// where it does not, a predicate that says yes to more never gets a smaller answer: at the first
// probe on which two predicates differ, the one that says yes goes up.
template <typename Predicate>
std::uint64_t largest_that_fits(std::uint64_t max, const Predicate& fits) {
  std::uint64_t low = 0;
  std::uint64_t high = max;
  while (low < high) {
    const std::uint64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

bool is_at_most(const ModelSpec& model, const PlanRequest& request,
                const std::vector<std::string>& engine, std::uint64_t memory_bytes) {
  const auto planned = plan(model, request, engine);
  return planned && planned->engines.front().bytes <= memory_bytes;
}

// An engine that refuses even the smallest case refuses all; larger cases may overflow, and then
// do not fit.
Status check_smallest(const ModelSpec& model, const PlanRequest& request,
                      const std::vector<std::string>& engine) {
  if (engine.front() == "all") {
    return fail(ErrorCode::kInvalidArgument, "engine \"all\", expected the name of one engine");
  }
  KVARTO_CHECK_OK(plan(model, request, engine));
  return {};
}

}  // namespace

Result<std::uint64_t> largest_context(const ModelSpec& model, PlanRequest request,
                                      std::string_view engine, std::uint64_t memory_bytes,
                                      std::uint64_t max_tokens) {
  const std::vector<std::string> engines = {std::string(engine)};
  request.context = 1;
  request.kv_memory_bytes = 0;  // what is needed, not what an engine takes when it is there
  KVARTO_CHECK_OK(check_smallest(model, request, engines));
  return largest_that_fits(max_tokens, [&](std::uint64_t tokens) {
    request.context = tokens;
    return is_at_most(model, request, engines, memory_bytes);
  });
}

Result<std::uint64_t> largest_num_sequences(const ModelSpec& model, PlanRequest request,
                                            std::string_view engine, std::uint64_t memory_bytes) {
  const std::vector<std::string> engines = {std::string(engine)};
  request.num_sequences = 1;
  request.kv_memory_bytes = 0;
  KVARTO_CHECK_OK(check_smallest(model, request, engines));
  return largest_that_fits(kMaxSequences, [&](std::uint64_t num_sequences) {
    request.num_sequences = num_sequences;
    return is_at_most(model, request, engines, memory_bytes);
  });
}

std::optional<HardwareSpec> smallest_device(std::uint64_t bytes,
                                            std::span<const HardwareSpec> devices) {
  const HardwareSpec* smallest = nullptr;
  for (const HardwareSpec& device : devices) {
    if (device.memory_bytes < bytes) continue;
    if (smallest == nullptr || device.memory_bytes < smallest->memory_bytes) smallest = &device;
  }
  if (smallest == nullptr) return std::nullopt;
  return *smallest;
}

}  // namespace kvarto
