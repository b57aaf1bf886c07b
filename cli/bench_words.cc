#include "bench_words.h"

#include <fmt/format.h>

#include "numbers.h"

namespace kvarto::cli {

Result<BenchContent> parse_content(std::string_view word) {
  if (word == "normal") return BenchContent::kNormal;
  if (word == "outlier") return BenchContent::kOutlier;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--data: found {}, expected normal or outlier", word));
}

Result<double> parse_seconds(std::string_view word) {
  constexpr double kMaxSeconds = 3600;
  KVARTO_TRY(const double seconds, parse_real(word));
  if (seconds > 0 && seconds <= kMaxSeconds) return seconds;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("--seconds: found {}, expected more than 0, at most {}", word, kMaxSeconds));
}

Result<std::uint64_t> parse_block_size(std::string_view word) {
  constexpr std::uint64_t kMaxBlockSize = std::uint64_t{1} << 30;
  if (word == "contiguous") return 0;
  KVARTO_TRY(const std::uint64_t tokens, parse_count(word));
  if (tokens != 0 && tokens <= kMaxBlockSize) return tokens;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("--block-size: found {}, expected contiguous or 1 to {}", word, kMaxBlockSize));
}

Result<std::uint32_t> parse_threads(std::string_view word) {
  KVARTO_TRY(const std::uint64_t threads, parse_count(word));
  return narrow("--threads", threads);
}

Status refuse_option(std::string_view option, std::string_view why) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}, expected no value", option, why));
}

}  // namespace kvarto::cli
