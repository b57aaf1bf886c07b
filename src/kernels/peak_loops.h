// Peak arithmetic loops of single units of the processor, for measurements alone.

#pragma once

#include <cstddef>
#include <cstdint>

namespace kvarto {

struct PeakLoop {
  const char* name = nullptr;
  const char* isa = nullptr;
  float (*run)(std::size_t rounds) = nullptr;  // the result depends on all the work
  std::uint64_t operations = 0;                // of one round; a multiply-add counts two
};

}  // namespace kvarto
