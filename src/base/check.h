// A check that is always on: for what only an error in this program can break.

#pragma once

#include <cstdlib>

// Ends the program if `condition` is false; a debugger shows where.
#define KVARTO_CHECK(condition)      \
  do {                               \
    if (!(condition)) std::abort();  \
  } while (false)
