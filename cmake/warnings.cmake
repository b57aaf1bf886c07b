add_library(kvarto_warnings INTERFACE)
target_compile_options(kvarto_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  -Wno-sign-conversion -Wnon-virtual-dtor -Wcast-qual
  # Pedantic GCC objects to a designated initialiser that leaves defaulted members out.
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports std::string's own copies as overlapping (GCC bug 105651) and the string inside an
  # engaged std::optional as uninitialised (GCC bug 80635).
  target_compile_options(kvarto_warnings INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
if(KVARTO_WERROR)
  target_compile_options(kvarto_warnings INTERFACE -Werror)
endif()
if(KVARTO_SANITIZE)
  add_compile_options(-fsanitize=${KVARTO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${KVARTO_SANITIZE})
endif()
