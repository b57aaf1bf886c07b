#include "cache/storage.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "kvarto/tracks.h"

namespace kvarto {
namespace {

Error no_memory(std::uint64_t bytes, int error_number) {
  return {ErrorCode::kOutOfMemory,
          fmt::format("cache storage: mapping {} bytes: {}", bytes, std::strerror(error_number))};
}

// The number after `key` in a line such as "Rss:   1234 kB", in bytes.
std::optional<std::uint64_t> kib_after(std::string_view line, std::string_view key) {
  if (!line.starts_with(key)) return std::nullopt;
  line.remove_prefix(key.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  std::uint64_t kib = 0;
  if (std::from_chars(line.data(), line.data() + line.size(), kib).ec != std::errc{}) {
    return std::nullopt;
  }
  return checked_mul(kib, 1024);
}

// Begin of the range in a header line of smaps, "7f00-7f10 rw-p ...".
std::optional<std::uint64_t> range_begin(std::string_view line) {
  std::uint64_t begin = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), begin, 16);
  if (error != std::errc{} || end == line.data() + line.size() || *end != '-') return std::nullopt;
  return begin;
}

std::optional<std::uint64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// A control group counts cached files as used, although the kernel drops them when asked.
std::uint64_t reclaimable_bytes(const char* stat_path) {
  std::ifstream stat(stat_path);
  std::uint64_t bytes = 0;
  std::uint64_t value = 0;
  for (std::string key; stat >> key >> value;) {
    if (key == "inactive_file" || key == "active_file") bytes += value;
  }
  return bytes;
}

// Smallest of the limits of control groups, versions 2 and 1, as a container sees its own.
std::uint64_t group_available_bytes() {
  struct Group {
    const char* limit;
    const char* used;
    const char* stat;
  };
  constexpr Group kGroups[] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
       "/sys/fs/cgroup/memory/memory.stat"}};
  std::uint64_t available = std::uint64_t{1} << 63;
  for (const Group& group : kGroups) {
    const auto limit = number_in(group.limit);
    const auto used = number_in(group.used);
    if (!limit || !used) continue;
    const std::uint64_t held = *used - std::min(*used, reclaimable_bytes(group.stat));
    available = std::min(available, *limit - std::min(*limit, held));
  }
  return available;
}

}  // namespace

Storage::Storage(Storage&& other) noexcept { *this = std::move(other); }

Storage& Storage::operator=(Storage&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  reservation_ = std::exchange(other.reservation_, nullptr);
  reservation_bytes_ = std::exchange(other.reservation_bytes_, 0);
  begin_ = std::exchange(other.begin_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  is_huge_page_advised_ = std::exchange(other.is_huge_page_advised_, false);
  return *this;
}

Storage::~Storage() { unmap(); }

void Storage::unmap() {
  if (reservation_ != nullptr) munmap(reservation_, reservation_bytes_);
  reservation_ = nullptr;
}

Result<Storage> Storage::map(std::uint64_t bytes, bool wants_huge_pages) {
  Storage storage;
  if (bytes == 0) return storage;
  if (bytes > (std::uint64_t{1} << 62)) return tl::unexpected(no_memory(bytes, ENOMEM));
  // Room to move the begin to a huge page's, and an inaccessible page on either side.
  const std::uint64_t reserved = bytes + 2 * kHugePageBytes;
  void* reservation =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reservation == MAP_FAILED) return tl::unexpected(no_memory(bytes, errno));
  storage.reservation_ = reservation;
  storage.reservation_bytes_ = reserved;
  const auto address = reinterpret_cast<std::uintptr_t>(reservation);
  const std::uint64_t lead = round_up(address + 1, kHugePageBytes) - address;
  storage.begin_ = static_cast<std::byte*>(reservation) + lead;
  storage.size_bytes_ = bytes;
  if (mprotect(storage.begin_, bytes, PROT_READ | PROT_WRITE) != 0) {
    return tl::unexpected(no_memory(bytes, errno));
  }
  if (wants_huge_pages) {
    storage.is_huge_page_advised_ = madvise(storage.begin_, bytes, MADV_HUGEPAGE) == 0;
  } else {
    // Where huge pages are always on, a run without them has to be asked for. Kernels that have
    // none refuse, and are right.
    (void)madvise(storage.begin_, bytes, MADV_NOHUGEPAGE);
  }
  return storage;
}

Status Storage::populate() {
  if (size_bytes_ == 0) return {};
  if (available_memory_bytes() < size_bytes_) {
    return tl::unexpected(no_memory(size_bytes_, ENOMEM));
  }
  // A write a page: reads would map the shared page of zeros.
  volatile std::byte* const first = begin_;
  for (std::uint64_t at = 0; at < size_bytes_; at += kPoolAlignBytes) first[at] = first[at];
  return {};
}

Residency residency_of(const Storage& storage) {
  Residency residency;
  const auto begin = reinterpret_cast<std::uintptr_t>(storage.begin());
  std::ifstream smaps("/proc/self/smaps");
  bool is_inside = false;
  for (std::string line; std::getline(smaps, line);) {
    // Field lines begin with a capital letter, ranges with a hexadecimal digit in lower case.
    if (!line.empty() && !(line[0] >= 'A' && line[0] <= 'Z')) {
      const auto at = range_begin(line);
      is_inside = at && *at >= begin && *at < begin + storage.size_bytes();
      continue;
    }
    if (!is_inside) continue;
    if (const auto bytes = kib_after(line, "Rss:")) residency.resident_bytes += *bytes;
    if (const auto bytes = kib_after(line, "AnonHugePages:")) residency.huge_page_bytes += *bytes;
  }
  return residency;
}

std::uint64_t available_memory_bytes() {
  std::uint64_t available = group_available_bytes();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (const auto bytes = kib_after(line, "MemAvailable:")) {
      available = std::min(available, *bytes);
    }
  }
  return available;
}

}  // namespace kvarto
