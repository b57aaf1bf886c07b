#!/usr/bin/env bash
# Fails, naming the lines, if a source is not formatted as .clang-format says.
# `tools/check_format.sh --fix` formats instead.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run --Werror)
[ "${1:-}" = --fix ] && mode=(-i)
git ls-files '*.h' '*.cc' | xargs clang-format-14 "${mode[@]}"
