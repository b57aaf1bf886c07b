// Runs a fuzz target over its corpus without libFuzzer: every file as it is, cut short, and with
// single bytes altered. Fails if an input makes the target hold more memory than it may.

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

// Bytes that the target may hold at once for an input of `size` bytes. A target with another
// promise defines its own.
extern "C" __attribute__((weak)) std::size_t fuzz_allocation_limit(std::size_t size) {
  // A few bytes of configuration can name 4,096 layers (kMaxLayers), each with several streams of
  // some hundred bytes.
  constexpr std::size_t kLayersBytes = 32u << 20;
  return 64 * size + kLayersBytes;
}

namespace {

std::atomic<std::size_t> held_bytes = 0;
std::atomic<std::size_t> peak_bytes = 0;

void count_allocation(void* pointer) {
  const std::size_t held = held_bytes += malloc_usable_size(pointer);
  std::size_t peak = peak_bytes.load();
  while (held > peak && !peak_bytes.compare_exchange_weak(peak, held)) {
  }
}

}  // namespace

void* operator new(std::size_t size) {
  void* pointer = std::malloc(size);
  if (pointer == nullptr) throw std::bad_alloc();
  count_allocation(pointer);
  return pointer;
}

void operator delete(void* pointer) noexcept {
  if (pointer == nullptr) return;
  held_bytes -= malloc_usable_size(pointer);
  std::free(pointer);
}

void operator delete(void* pointer, std::size_t) noexcept { operator delete(pointer); }

namespace {

using Bytes = std::vector<std::uint8_t>;

// Cuts and alterations of one seed; spread evenly over longer ones.
constexpr std::size_t kMaxVariants = 256;

bool run_one(const Bytes& input, const std::string& name) {
  // A copy of exact size, so that a sanitizer sees the first byte read beyond the end.
  const Bytes exact(input.begin(), input.end());
  const std::size_t before = held_bytes;
  peak_bytes = before;
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  const std::size_t held = peak_bytes - before;
  if (held <= fuzz_allocation_limit(exact.size())) return true;
  std::fprintf(stderr,
               "%s: %zu bytes of input made the target hold %zu bytes, at most %zu allowed\n",
               name.c_str(), exact.size(), held, fuzz_allocation_limit(exact.size()));
  return false;
}

bool run_variants(const Bytes& seed, const std::string& name) {
  bool is_good = run_one(seed, name);
  const std::size_t step = std::max<std::size_t>(1, seed.size() / kMaxVariants);
  for (std::size_t i = 0; i < seed.size(); i += step) {
    is_good = run_one(Bytes(seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(i)),
                      name + " cut to " + std::to_string(i)) &&
              is_good;
    for (const int flip : {0x01, 0x80, 0xff}) {
      Bytes altered = seed;
      altered[i] = static_cast<std::uint8_t>(altered[i] ^ flip);
      is_good = run_one(altered, name + " altered at " + std::to_string(i)) && is_good;
    }
  }
  return is_good;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t num_seeds = 0;
  bool is_good = true;
  for (int i = 1; i < argc; ++i) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i], error)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const Bytes seed((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      is_good = run_variants(seed, entry.path().filename().string()) && is_good;
      ++num_seeds;
    }
  }
  if (num_seeds == 0) std::fprintf(stderr, "no seeds found\n");
  return is_good && num_seeds > 0 ? 0 : 1;
}
