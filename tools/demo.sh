#!/usr/bin/env bash
# usage: demo.sh TOOL
# Real plans of three models, each made by the command above it.
set -euo pipefail
tool="$1"

show() {
  echo
  echo "\$ kvarto $*"
  "$tool" "$@"
}

show inspect llama-3.1-8b
show plan llama-3.1-8b -c 131072 --device-memory 24GiB --weights 16GB --device h100-sxm-80gb
show plan deepseek-v3.2 -c 131072 --kv-cache-dtype fp8_ds_mla --engine kvarto --explain
show plan llama-3.1-8b -c 131072 --what-if mha,gqa:8,mqa,mla:512+64,dsa,csa,hca,multilevel:16,dynamic:0.25
echo
echo "The tool is build/kvarto; \`kvarto models\` lists the built-in models, \`kvarto plan --help\` the options."
