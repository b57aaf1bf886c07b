#!/usr/bin/env bash
# usage: run.sh KIND SOURCE_DIR BUILD_DIR COMPILER
# Builds the example project of KIND (find_package or add_subdirectory) and runs it.
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
cmake --build "$work/build" --target plan
"$work/build/plan"
