#include "base/check.h"

#include <cstdlib>

namespace kvarto {

void check_failed() { std::abort(); }

}  // namespace kvarto
