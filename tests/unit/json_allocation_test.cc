// The memory that reading JSON takes, counted by this program's own operator new.

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>

#include "formats/json_value.h"

namespace {

std::atomic<std::size_t> live_bytes{0};
std::atomic<std::size_t> peak_bytes{0};

// The size of each piece stands before it.
constexpr std::size_t kHeader = alignof(std::max_align_t);

void* take(std::size_t size) {
  auto* piece = static_cast<char*>(std::malloc(size + kHeader));
  if (piece == nullptr) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(piece) = size;
  const std::size_t live = live_bytes += size;
  if (live > peak_bytes) peak_bytes = live;
  return piece + kHeader;
}

void give_back(void* pointer) noexcept {
  if (pointer == nullptr) return;
  char* piece = static_cast<char*>(pointer) - kHeader;
  live_bytes -= *reinterpret_cast<std::size_t*>(piece);
  std::free(piece);
}

}  // namespace

void* operator new(std::size_t size) { return take(size); }
void* operator new[](std::size_t size) { return take(size); }
void operator delete(void* pointer) noexcept { give_back(pointer); }
void operator delete[](void* pointer) noexcept { give_back(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { give_back(pointer); }
void operator delete[](void* pointer, std::size_t) noexcept { give_back(pointer); }

namespace kvarto {
namespace {

std::string repeated(const std::string& first, const std::string& item, const std::string& last) {
  // Just beyond a power of two, where a growing vector holds its old and its new storage.
  constexpr int kItems = (1 << 16) + 1;
  std::string text = first;
  for (int i = 0; i < kItems; ++i) text += (i == 0 ? "" : ",") + item;
  return text + last;
}

std::string short_keys() {
  std::string text = "{";
  for (int i = 0; i < (1 << 16) + 1; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  }
  return text + "}";
}

class HostileText : public testing::TestWithParam<std::string> {};

TEST_P(HostileText, TakesAtMostTheStatedMultipleOfItsSize) {
  const std::string& text = GetParam();
  const std::size_t before = live_bytes;
  peak_bytes = before;
  { const auto value = parse_json(text, "text"); }
  // The constant is for what an error message and the first allocations take.
  constexpr std::size_t kConstant = 16 << 10;
  EXPECT_LE(peak_bytes - before, kMaxJsonExpansion * text.size() + kConstant) << text.substr(0, 20);
  EXPECT_GT(peak_bytes, before);
}

INSTANTIATE_TEST_SUITE_P(WorstTexts, HostileText,
                         testing::Values(repeated("[", "1", "]"), repeated("[", "[]", "]"),
                                         repeated("[", "{}", "]"), repeated("[", "[0]", "]"),
                                         repeated("[", "[[0]]", "]"), repeated("[", "\"\"", "]"),
                                         repeated("[", "{\"\":0}", "]"),
                                         repeated("[", "{\"\":[0]}", "]"), short_keys(),
                                         "\"" + std::string(1 << 20, 'x') + "\"",
                                         repeated("[", "1", "x"), std::string(1 << 20, '[')));

}  // namespace
}  // namespace kvarto
