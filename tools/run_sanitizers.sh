#!/usr/bin/env bash
# Builds and runs what reads outside data and what manages memory under the address and
# undefined-behaviour sanitizers, then what uses several threads under the thread sanitizer. The
# unrolled kernels take a compiler minutes each here.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { echo "== $*"; }

# Configures the preset once; later runs build only what changed.
configure() { [ -f "build/$1/build.ninja" ] || cmake --preset "$1" >/dev/null; }

step "tests under the address and undefined-behaviour sanitizers"
configure asan
cmake --build build/asan --target sanitized_tests
ctest --test-dir build/asan --output-on-failure -j "$(nproc)" -L 'unit|property|fuzz'

step "tests of several threads under the thread sanitizer"
configure tsan
cmake --build build/tsan --target attention_tests shared_cache_tests
ctest --test-dir build/tsan --output-on-failure -R 'attention_tests|shared_cache_tests'

step "done"
