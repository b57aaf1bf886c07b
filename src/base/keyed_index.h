// Tables from names, and from pairs of numbers, to numbers. Their hash has a random key, so that no
// file can choose names that collide.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarto {

namespace keyed_hash {

inline std::uint64_t random_key() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// The high and the low half of a 128-bit product, folded: every bit of both factors spreads.
inline std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
}

// Odd numbers without a pattern: digits of the golden ratio and of the root of 3.
inline constexpr std::uint64_t kFactor = 0x9E37'79B9'7F4A'7C15;
inline constexpr std::uint64_t kOtherFactor = 0xBB67'AE85'84CA'A73B;

inline std::uint64_t hash_of(std::string_view name, std::uint64_t key) {
  std::uint64_t hash = key ^ (name.size() * kFactor);
  for (; name.size() >= 8; name.remove_prefix(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, name.data(), 8);
    hash = fold(hash ^ word, key | 1) ^ kOtherFactor;
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, name.data(), name.size());
  return fold(fold(hash ^ rest, key | 1) ^ kOtherFactor, kFactor);
}

}  // namespace keyed_hash

// Const methods may be called concurrently. The names must outlive the index.
class NameIndex {
 public:
  // Room for at most `names.size()` of `names`. Requires: fewer than 2^31 names.
  explicit NameIndex(std::span<const std::string> names)
      : names_(names),
        key_(keyed_hash::random_key()),
        slots_(std::bit_ceil(names.size() * 2 + 2), kEmpty) {}

  // Adds names[index]; of equal names the first one stays. Returns whether it was added.
  bool add(std::uint32_t index) {
    std::size_t at = slot_of(names_[index]);
    if (slots_[at] != kEmpty) return false;
    slots_[at] = index;
    return true;
  }
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const {
    const std::uint32_t index = slots_[slot_of(name)];
    if (index == kEmpty) return std::nullopt;
    return index;
  }

 private:
  static constexpr std::uint32_t kEmpty = 0xFFFF'FFFF;

  // That of the name, or the empty one where it would be.
  [[nodiscard]] std::size_t slot_of(std::string_view name) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = keyed_hash::hash_of(name, key_) & mask;
    while (slots_[at] != kEmpty && names_[slots_[at]] != name) at = (at + 1) & mask;
    return at;
  }

  std::span<const std::string> names_;
  std::uint64_t key_;
  std::vector<std::uint32_t> slots_;
};

// Const methods may be called concurrently.
class PairIndex {
 public:
  explicit PairIndex(std::size_t max_pairs)
      : key_(keyed_hash::random_key()), slots_(std::bit_ceil(max_pairs * 2 + 2)) {}

  // Requires: at most max_pairs of them, value < 2^32 - 1. Of equal pairs the first one stays.
  void add(std::uint32_t left, std::uint32_t right, std::uint32_t value) {
    Slot& slot = slots_[slot_of(left, right)];
    if (slot.value == kEmpty) slot = {left, right, value};
  }
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint32_t left, std::uint32_t right) const {
    const Slot& slot = slots_[slot_of(left, right)];
    if (slot.value == kEmpty) return std::nullopt;
    return slot.value;
  }

 private:
  static constexpr std::uint32_t kEmpty = 0xFFFF'FFFF;
  struct Slot {
    std::uint32_t left = 0, right = 0, value = kEmpty;
  };

  [[nodiscard]] std::size_t slot_of(std::uint32_t left, std::uint32_t right) const {
    const std::size_t mask = slots_.size() - 1;
    const std::uint64_t pair = (std::uint64_t{left} << 32) | right;
    const std::uint64_t once = keyed_hash::fold(pair ^ key_, key_ | 1);
    std::size_t at = keyed_hash::fold(once ^ keyed_hash::kOtherFactor, keyed_hash::kFactor) & mask;
    while (slots_[at].value != kEmpty && (slots_[at].left != left || slots_[at].right != right)) {
      at = (at + 1) & mask;
    }
    return at;
  }

  std::uint64_t key_;
  std::vector<Slot> slots_;
};

}  // namespace kvarto
