// The families that run, one file each.

#pragma once

#include "runtime/family.h"

namespace kvarto {

extern const Family kGemma2Family;
extern const Family kGemma3Family;
extern const Family kLlamaFamily;
extern const Family kMistralFamily;
extern const Family kQwen2Family;
extern const Family kQwen3Family;

}  // namespace kvarto
