// Reference loops: what the machine can do at best, for measurements to be held against.

#pragma once

namespace kvarto::KVARTO_ISA {

// Reads every byte of a range with plain vector loads and nothing else to do.
inline float read_stream(const std::byte* from, std::size_t size_bytes) {
  constexpr int kStreams = 8;
  constexpr std::size_t kStep = std::size_t{kStreams} * kLanes * sizeof(float);
  Vec largest[kStreams];
  KVARTO_UNROLL(kStreams, i) { largest[i] = zero(); };
  for (std::size_t offset = 0; offset + kStep <= size_bytes; offset += kStep) {
    KVARTO_UNROLL(kStreams, i) {
      const std::byte* p = from + offset + static_cast<std::size_t>(i) * kLanes * sizeof(float);
      largest[i] = max(largest[i], load_elements<Element::kF32>(p));
    };
  }
  KVARTO_UNROLL(kStreams - 1, i) { largest[0] = max(largest[0], largest[i + 1]); };
  return reduce_max(largest[0]);
}

// Independent chains of multiply-adds, enough to fill the pipeline; the largest number that stays
// in registers.
inline constexpr int kFmaChains = kLanes == 16 ? 24 : 12;

inline float fma_loop(std::size_t rounds) {
  Vec acc[kFmaChains];
  KVARTO_UNROLL(kFmaChains, i) { acc[i] = set1(static_cast<float>(i)); };
  const Vec factor = set1(0.999f);
  const Vec term = set1(0.001f);
  for (std::size_t round = 0; round < rounds; ++round) {
    KVARTO_UNROLL(kFmaChains, i) { acc[i] = fma(acc[i], factor, term); };
  }
  KVARTO_UNROLL(kFmaChains - 1, i) { acc[0] = max(acc[0], acc[i + 1]); };
  return reduce_max(acc[0]);
}

}  // namespace kvarto::KVARTO_ISA
