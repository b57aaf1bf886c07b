// Memory of one pool: pages from the operating system, aligned for huge pages.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kvarto/result.h"

namespace kvarto {

// A range of zeroed memory that begins at a multiple of kHugePageBytes. Pages inaccessible lie
// before and behind it, so that an overrun faults and the kernel never joins it with other
// mappings. Movable; the bytes stay where they are.
class Storage {
 public:
  static constexpr std::uint64_t kHugePageBytes = std::uint64_t{1} << 21;

  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  Storage(Storage&& other) noexcept;
  Storage& operator=(Storage&& other) noexcept;
  ~Storage();

  // Maps `bytes` bytes; 0 gives an empty range. `wants_huge_pages` advises the kernel to use huge
  // pages; whether it does shows in huge_page_bytes() after the pages are touched. Errors:
  // kOutOfMemory.
  [[nodiscard]] static Result<Storage> map(std::uint64_t bytes, bool wants_huge_pages);

  // Makes every page resident now. Errors: kOutOfMemory.
  [[nodiscard]] Status populate();

  [[nodiscard]] std::byte* begin() const { return begin_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  // Whether the kernel took the advice; false on kernels without transparent huge pages.
  [[nodiscard]] bool is_huge_page_advised() const { return is_huge_page_advised_; }

 private:
  void unmap();

  void* reservation_ = nullptr;
  std::uint64_t reservation_bytes_ = 0;
  std::byte* begin_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  bool is_huge_page_advised_ = false;
};

// What the kernel says of a range of this process (/proc/self/smaps); zeros where it says nothing.
struct Residency {
  std::uint64_t resident_bytes = 0;
  std::uint64_t huge_page_bytes = 0;
};
[[nodiscard]] Residency residency_of(const Storage& storage);

// Memory that this process can still get without swapping: MemAvailable, or what the control
// group's limit leaves where that is less. 2^63 where the system does not tell.
[[nodiscard]] std::uint64_t available_memory_bytes();

}  // namespace kvarto
