#!/usr/bin/env bash
# usage: run_fuzzers.sh BUILD_DIR [SECONDS]
# Runs every fuzz target of BUILD_DIR over its corpus, SECONDS (default 300) in all. A finding is
# kept under BUILD_DIR/findings and ends the run with exit code 1.
set -euo pipefail
build="$1"
total="${2:-300}"
corpus="$(dirname "$0")/../tests/fuzz/corpus"
mapfile -t targets < <(find "$build/tests/fuzz" -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x | sort)
[ ${#targets[@]} -gt 0 ] || { echo "no fuzz targets under $build/tests/fuzz" >&2; exit 1; }
seconds=$((total / ${#targets[@]}))
mkdir -p "$build/findings"
failed=0
for target in "${targets[@]}"; do
  name="$(basename "$target")"
  name="${name#fuzz_}"
  # New inputs go to a folder of their own; the corpus in the tree stays as it is.
  grown="$build/grown/$name"
  mkdir -p "$grown"
  echo "fuzz_$name: $seconds s"
  "$target" "$grown" "$corpus/$name" -max_total_time="$seconds" -max_len=65536 -timeout=10 \
    -rss_limit_mb=2048 -malloc_limit_mb=512 -print_final_stats=1 \
    -artifact_prefix="$build/findings/$name-" >"$build/findings/$name.log" 2>&1 || {
    failed=1
    tail -40 "$build/findings/$name.log" >&2
  }
  grep -E 'stat::(number_of_executed_units|peak_rss_mb)' "$build/findings/$name.log" || true
done
exit "$failed"
