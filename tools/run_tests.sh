#!/usr/bin/env bash
# Builds and runs every test: the release build with warnings as errors, in it the replay of the
# fuzzers' seeds against readers built with the address and undefined-behaviour sanitizers, and the
# format check. More under sanitizers, threads included, is tools/run_sanitizers.sh (make sanitize).
set -euo pipefail
cd "$(dirname "$0")/.."

step() { echo "== $*"; }

# Configures the preset once; later runs build only what changed.
configure() { [ -f "build/$1/build.ninja" ] || cmake --preset "$1" >/dev/null; }

step "release build, warnings are errors"
configure test
cmake --build build/test

step "all tests"
ctest --test-dir build/test --output-on-failure -j "$(nproc)"

if command -v clang-format-14 >/dev/null && git rev-parse --git-dir >/dev/null 2>&1; then
  step "format"
  tools/check_format.sh
fi

step "done"
