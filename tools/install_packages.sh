#!/usr/bin/env bash
# Installs the Debian packages of the named stages (see packages.txt) that are missing.
# Asks for sudo only if something is missing and the caller is not root.
set -euo pipefail
list="$(dirname "$0")/../packages.txt"
if ! command -v dpkg-query >/dev/null; then
  echo "not a Debian system: packages.txt lists what the build needs" >&2
  exit 0
fi
missing=()
for stage in "$@"; do
  while read -r package; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
  done < <(awk -v s="$stage" '$1 == s { print $2 }' "$list")
done
[ ${#missing[@]} -eq 0 ] && exit 0
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
echo "installing: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
