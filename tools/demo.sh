#!/usr/bin/env bash
# usage: demo.sh TOOL
# A real run of Llama-3.1-8B's geometry and real plans of three models, each made by the command
# above it.
set -euo pipefail
tool="$1"

# show QUESTION ARGUMENTS... prints the question, the command and what it answers.
show() {
  printf '\n# %s\n$ kvarto %s\n' "$1" "${*:2}"
  "$tool" "${@:2}"
}

show "Llama-3.1-8B's attention, run on this machine beside its alternatives: is the promise true?" \
  profile llama-3.1-8b -c 4096 --what-if mha,gqa:8,mqa,mla:512+64,dsa --planned --brief
show "What does the cache of Llama-3.1-8B consist of?" \
  inspect llama-3.1-8b
show "What does it cost at its full context, and what fits on a 24 GiB card beside the weights?" \
  plan llama-3.1-8b -c 131072 --device-memory 24GiB --weights 16GB --engine kvarto
show "DeepSeek-V3.2 in its release format: where does every byte go?" \
  plan deepseek-v3.2 -c 131072 --kv-cache-dtype fp8_ds_mla --device h100-sxm-80gb --engine kvarto --explain
show "What would Llama-3.1-8B take with another attention?" \
  plan llama-3.1-8b -c 131072 --engine ideal \
  --what-if mha,gqa:8,mqa,mla:512+64,dsa,csa,hca,multilevel:16,dynamic:0.25
printf '\n%s\n' "The tool is build/kvarto: \`kvarto models\` lists the models it knows, \`kvarto plan --help\` the options."
