#!/usr/bin/env bash
# usage: lint.sh [FILE...]
# Checks the format of all sources, then runs clang-tidy (.clang-tidy) over the named sources, or over
# all of src/ and cli/.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/check_format.sh
[ -f build/dev/compile_commands.json ] || cmake --preset dev >/dev/null
files=("$@")
if [ ${#files[@]} -eq 0 ]; then mapfile -t files < <(git ls-files 'src/*.cc' 'cli/*.cc'); fi
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy-14 -p build/dev --quiet
