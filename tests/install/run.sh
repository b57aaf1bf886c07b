#!/usr/bin/env bash
# usage: run.sh KIND SOURCE_DIR BUILD_DIR COMPILER
# Builds the example project of KIND and runs it. Under add_subdirectory the example is compiled but
# not linked: building the whole library again would only show what find_package shows.
set -euo pipefail
kind="$1" source="$2" build="$3" compiler="$4"
work="$build/tests/install/$kind"
rm -rf "$work"
options=(-S "$source/tests/install/$kind" -B "$work/build" -G Ninja -D CMAKE_BUILD_TYPE=Release
  -D "CMAKE_CXX_COMPILER=$compiler")
if command -v ccache >/dev/null; then options+=(-D CMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
if [ "$kind" = find_package ]; then
  cmake --install "$build" --prefix "$work/prefix" >/dev/null
  options+=(-D "CMAKE_PREFIX_PATH=$work/prefix")
  # The example must not find headers of the source tree.
  [ -f "$work/prefix/include/kvarto/codec.h" ]
  [ -x "$work/prefix/bin/kvarto" ]
else
  options+=(-D "KVARTO_SOURCE_DIR=$source")
fi
cmake "${options[@]}" >/dev/null
if [ "$kind" = find_package ]; then
  cmake --build "$work/build" --target plan
  "$work/build/plan"
else
  object=$(ninja -C "$work/build" -t targets all | sed -n 's/^\(.*plan\.dir.*plan\.cc\.o\):.*/\1/p')
  ninja -C "$work/build" "$object"
fi
