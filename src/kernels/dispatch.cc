#include "kernels/dispatch.h"

#include <array>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#define KVARTO_HAS_X86 1
#else
#define KVARTO_HAS_X86 0
#endif
#ifndef KVARTO_HAS_AVX512FP16
#define KVARTO_HAS_AVX512FP16 0
#endif

namespace kvarto {

namespace scalar {
void fill_table(KernelTable& table);
void fill_codecs(KernelTable& table);
}  // namespace scalar
#if KVARTO_HAS_X86
namespace avx2 {
void fill_table(KernelTable& table);
void fill_codecs(KernelTable& table);
}  // namespace avx2
namespace avx512 {
void fill_table(KernelTable& table);
void fill_codecs(KernelTable& table);
}  // namespace avx512
namespace avx512vnni {
PeakLoop peak_loop();
void fill_code_kernels(CodeKernels& kernels);
void fill_index_kernels(IndexKernels& kernels);
}  // namespace avx512vnni
#if KVARTO_HAS_AVX512FP16
namespace avx512fp16 {
PeakLoop peak_loop();
void fill_table(KernelTable& table);
}  // namespace avx512fp16
#endif
#endif

namespace {

constexpr std::array<std::string_view, 3> kIsaNames = {"scalar", "avx2", "avx512"};

#if KVARTO_HAS_X86
struct CpuidLeaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

CpuidLeaf cpuid(unsigned leaf, unsigned subleaf) {
  CpuidLeaf r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

// Extended control register 0: the register files that the operating system saves.
std::uint64_t saved_state() {
  unsigned low = 0;
  unsigned high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

constexpr bool has_bits(std::uint64_t value, std::uint64_t bits) { return (value & bits) == bits; }

// Bit numbers: Intel SDM volume 2, CPUID leaves 1 and 7; volume 1, section 13.3 for XCR0.
void add_x86_isas(std::vector<Isa>& isas) {
  constexpr unsigned kFma = 1u << 12, kOsxsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;
  constexpr unsigned kAvx2 = 1u << 5;
  constexpr unsigned kAvx512F = 1u << 16, kAvx512Dq = 1u << 17, kAvx512Bw = 1u << 30;
  constexpr unsigned kAvx512Vl = 1u << 31;
  constexpr std::uint64_t kYmmState = 0x6, kZmmState = 0xe6;
  const CpuidLeaf one = cpuid(1, 0);
  if (!has_bits(one.c, kFma | kOsxsave | kAvx | kF16c)) return;
  const std::uint64_t state = saved_state();
  const CpuidLeaf seven = cpuid(7, 0);
  if (!has_bits(state, kYmmState) || !has_bits(seven.b, kAvx2)) return;
  isas.push_back(Isa::kAvx2);
  if (has_bits(state, kZmmState) &&
      has_bits(seven.b, kAvx512F | kAvx512Dq | kAvx512Bw | kAvx512Vl)) {
    isas.push_back(Isa::kAvx512);
  }
}

#if KVARTO_HAS_AVX512FP16
// Requires: kAvx512 is supported. Every processor with the unit has permutations of bytes too.
bool has_half_unit() {
  constexpr unsigned kFp16 = 1u << 23;
  constexpr unsigned kVbmi = 1u << 1;
  const CpuidLeaf seven = cpuid(7, 0);
  return has_bits(seven.d, kFp16) && has_bits(seven.c, kVbmi);
}
#endif

bool has_vnni() {
  constexpr unsigned kVnni = 1u << 11;
  return has_bits(cpuid(7, 0).c, kVnni);
}

void add_x86_peaks(std::vector<PeakLoop>& loops) {
#if KVARTO_HAS_AVX512FP16
  if (has_half_unit()) loops.push_back(avx512fp16::peak_loop());
#endif
  if (has_vnni()) loops.push_back(avx512vnni::peak_loop());
}
#endif

std::vector<Isa> find_isas() {
  std::vector<Isa> isas = {Isa::kScalar};
#if KVARTO_HAS_X86
  add_x86_isas(isas);
#endif
  return isas;
}

// The codecs that are elements without scales.
void fill_plain_codecs(KernelTable& table) {
  constexpr std::pair<Codec, Element> kPlain[] = {
      {Codec::kF32, Element::kF32}, {Codec::kF16, Element::kF16}, {Codec::kBF16, Element::kBF16}};
  for (const auto& [codec, element] : kPlain) {
    table.encode[static_cast<int>(codec)] = table.from_f32[static_cast<int>(element)];
    table.decode[static_cast<int>(codec)] = table.to_f32[static_cast<int>(element)];
  }
}

std::array<KernelTable, 3> fill_tables() {
  std::array<KernelTable, 3> tables;
  scalar::fill_table(tables[0]);
  scalar::fill_codecs(tables[0]);
#if KVARTO_HAS_X86
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::kAvx2) {
      avx2::fill_table(tables[1]);
      avx2::fill_codecs(tables[1]);
    }
    if (isa == Isa::kAvx512) {
      avx512::fill_table(tables[2]);
      avx512::fill_codecs(tables[2]);
      if (has_dot_products()) {
        avx512vnni::fill_code_kernels(tables[2].codes);
        avx512vnni::fill_index_kernels(tables[2].index);
      }
    }
  }
#endif
  for (KernelTable& table : tables) fill_plain_codecs(table);
  return tables;
}

std::string supported_names() {
  std::string names;
  for (const Isa isa : supported_isas()) {
    if (!names.empty()) names += ", ";
    names += isa_name(isa);
  }
  return names;
}

}  // namespace

std::string_view isa_name(Isa isa) { return kIsaNames[static_cast<std::size_t>(isa)]; }

std::span<const Isa> supported_isas() {
  static const std::vector<Isa> isas = find_isas();
  return isas;
}

bool has_dot_products() {
#if KVARTO_HAS_X86
  return supported_isas().back() == Isa::kAvx512 && has_vnni();
#else
  return false;
#endif
}

std::span<const PeakLoop> native_peak_loops() {
  static const std::vector<PeakLoop> loops = [] {
    std::vector<PeakLoop> found;
#if KVARTO_HAS_X86
    // Both need the 512-bit state and base set that kAvx512 has checked.
    if (supported_isas().back() == Isa::kAvx512) add_x86_peaks(found);
#endif
    return found;
  }();
  return loops;
}

const KernelTable& kernel_table(Isa isa) {
  static const std::array<KernelTable, 3> tables = fill_tables();
  return tables[static_cast<std::size_t>(isa)];
}

Result<const KernelTable*> half_kernels(const KernelTable& selected) {
  if (selected.isa != Isa::kAvx512) {
    return fail(ErrorCode::kUnsupported,
                "arith: f16 needs avx512fp16, but the instruction set that runs here is " +
                    std::string(isa_name(selected.isa)));
  }
#if KVARTO_HAS_X86 && KVARTO_HAS_AVX512FP16
  if (has_half_unit()) {
    static const KernelTable table = [] {
      KernelTable filled = kernel_table(Isa::kAvx512);
      avx512fp16::fill_table(filled);
      return filled;
    }();
    return &table;
  }
  return fail(ErrorCode::kUnsupported,
              "arith: f16 needs avx512fp16, which this processor does not have");
#else
  return fail(ErrorCode::kUnsupported,
              "arith: f16 needs avx512fp16, for which this library's compiler could not build");
#endif
}

Result<Isa> choose_isa(const char* request) {
  if (request == nullptr || *request == '\0') return supported_isas().back();
  for (std::size_t i = 0; i < kIsaNames.size(); ++i) {
    if (kIsaNames[i] != request) continue;
    for (const Isa isa : supported_isas()) {
      if (static_cast<std::size_t>(isa) == i) return isa;
    }
    return fail(ErrorCode::kUnsupported, "KVARTO_ISA: found \"" + std::string(request) +
                                             "\", but this machine supports only " +
                                             supported_names());
  }
  return fail(ErrorCode::kInvalidArgument, "KVARTO_ISA: found \"" + std::string(request) +
                                               "\", expected scalar, avx2 or avx512");
}

Result<const KernelTable*> active_kernels() {
  static const Result<Isa> chosen = choose_isa(std::getenv("KVARTO_ISA"));
  if (!chosen.has_value()) return tl::unexpected<Error>(chosen.error());
  return &kernel_table(*chosen);
}

}  // namespace kvarto
