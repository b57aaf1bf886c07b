// A check that is always on: for what only an error in this program can break.

#pragma once

namespace kvarto {

// Ends the program; a debugger shows from where.
[[noreturn]] void check_failed();

}  // namespace kvarto

#define KVARTO_CHECK(condition)                 \
  do {                                          \
    if (!(condition)) ::kvarto::check_failed(); \
  } while (false)
