// The memory whose reading is the ceiling of a measurement.

#pragma once

#include <cstddef>
#include <span>

#include "cache/storage.h"
#include "kvarto/result.h"

namespace kvarto {

// A read of less than this takes microseconds, most of them for starting threads and timing.
inline constexpr std::uint64_t kMinStreamedBytes = std::uint64_t{1} << 20;

// Not thread-safe; one owner.
class StreamedBytes {
 public:
  StreamedBytes() = default;
  // `cached`, which must outlive the object; where it has less than kMinStreamedBytes, as many
  // bytes of its own. Errors: kOutOfMemory. Requires: num_threads is not 0.
  [[nodiscard]] static Result<StreamedBytes> create(std::span<const std::byte> cached,
                                                    std::size_t num_threads);

  // What one thread reads: whole cache lines.
  [[nodiscard]] std::span<const std::byte> share(std::size_t thread) const;
  // All shares together.
  [[nodiscard]] std::uint64_t size_bytes() const { return share_bytes_ * num_threads_; }

 private:
  Storage own_;
  const std::byte* begin_ = nullptr;
  std::size_t num_threads_ = 1;
  std::size_t share_bytes_ = 0;
};

}  // namespace kvarto
