#!/usr/bin/env bash
# Builds and runs every test: the release build with warnings as errors, then what reads outside data
# and what manages memory again under the address and undefined-behaviour sanitizers, then what uses
# several threads under the thread sanitizer.
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

step "tests under the address and undefined-behaviour sanitizers"
configure asan
cmake --build build/asan --target sanitized_tests
ctest --test-dir build/asan --output-on-failure -j "$(nproc)" -L 'unit|property|fuzz'

step "tests of several threads under the thread sanitizer"
configure tsan
cmake --build build/tsan --target attention_tests shared_cache_tests
ctest --test-dir build/tsan --output-on-failure -R 'attention_tests|shared_cache_tests'

if command -v clang-format-14 >/dev/null && git rev-parse --git-dir >/dev/null 2>&1; then
  step "format"
  tools/check_format.sh
fi

step "done"
