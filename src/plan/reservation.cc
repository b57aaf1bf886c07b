// Contiguous against paged reservation for sequences of given lengths.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/checked.h"
#include "kvarto/plan.h"
#include "kvarto/tracks.h"

namespace kvarto {
namespace {

// A length and a block, so that their rounded sum is a context that can be planned.
constexpr std::uint64_t kMaxReservedTokens = std::uint64_t{1} << 48;

// Bytes of one sequence on the ideal engine, remembered by length.
class SequenceBytes {
 public:
  SequenceBytes(const ModelSpec& model, const PlanRequest& request)
      : model_(model), request_(request) {
    request_.num_sequences = 1;
  }

  [[nodiscard]] Result<std::uint64_t> at(std::uint64_t tokens) {
    if (const auto known = bytes_.find(tokens); known != bytes_.end()) return known->second;
    request_.context = tokens;
    KVARTO_TRY(const Plan planned, plan(model_, request_, {"ideal"}));
    bytes_[tokens] = planned.engines.front().bytes;
    return planned.engines.front().bytes;
  }

 private:
  const ModelSpec& model_;
  PlanRequest request_;
  std::map<std::uint64_t, std::uint64_t> bytes_;
};

struct Sums {
  CheckedSum tokens, reserved_tokens, bytes, real_bytes;

  void add(std::uint64_t length, std::uint64_t reserved) {
    tokens.add(length);
    reserved_tokens.add(reserved);
  }

  [[nodiscard]] Result<Reservation> finish() const {
    if (tokens.has_overflow() || reserved_tokens.has_overflow() || bytes.has_overflow() ||
        real_bytes.has_overflow()) {
      return fail(ErrorCode::kInvalidArgument, "the lengths' tokens or bytes overflow 64 bits");
    }
    return Reservation{.tokens = tokens.total(),
                       .reserved_tokens = reserved_tokens.total(),
                       .bytes = bytes.total(),
                       .wasted_bytes = bytes.total() - real_bytes.total(),
                       .utilisation = static_cast<double>(tokens.total()) /
                                      static_cast<double>(reserved_tokens.total())};
  }
};

}  // namespace

Result<ReservationComparison> compare_reservation(const ModelSpec& model,
                                                  const PlanRequest& request,
                                                  const std::vector<std::uint64_t>& lengths) {
  if (lengths.empty()) {
    return fail(ErrorCode::kInvalidArgument, "no lengths, expected at least one");
  }
  if (std::find(lengths.begin(), lengths.end(), 0) != lengths.end()) {
    return fail(ErrorCode::kInvalidArgument, "length 0, expected at least 1 token");
  }
  const std::uint64_t block_size = request.block_size == 0 ? kDefaultBlockSize : request.block_size;
  const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (block_size > kMaxReservedTokens || longest > kMaxReservedTokens) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("length {} in blocks of {}, expected at most 2^48 tokens", longest,
                            block_size));
  }
  SequenceBytes sequence_bytes(model, request);
  Sums contiguous;
  Sums paged;
  for (const std::uint64_t length : lengths) {
    const std::uint64_t rounded = round_up(length, block_size);
    KVARTO_TRY(const std::uint64_t real, sequence_bytes.at(length));
    KVARTO_TRY(const std::uint64_t in_longest, sequence_bytes.at(longest));
    KVARTO_TRY(const std::uint64_t in_blocks, sequence_bytes.at(rounded));
    for (Sums* sums : {&contiguous, &paged}) sums->real_bytes.add(real);
    contiguous.add(length, longest);
    contiguous.bytes.add(in_longest);
    paged.add(length, rounded);
    paged.bytes.add(in_blocks);
  }
  ReservationComparison comparison{.block_size = block_size};
  KVARTO_TRY(comparison.contiguous, contiguous.finish());
  KVARTO_TRY(comparison.paged, paged.finish());
  return comparison;
}

}  // namespace kvarto
