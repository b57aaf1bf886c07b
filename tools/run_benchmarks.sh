#!/usr/bin/env bash
# usage: run_benchmarks.sh [BUILD_DIR]
# Runs every benchmark of the build, then times the tool as a whole process.
set -euo pipefail
cd "$(dirname "$0")/.."
build="${1:-build/bench}"
for program in "$build"/bench/*_bench; do
  echo "== $(basename "$program")"
  "$program" --benchmark_counters_tabular=true
done
echo "== the tool as a process"
python3 tools/time_process.py "$build/kvarto"
