"""usage: stories.py TOOL

`kvarto run` and `kvarto eval` on the trained models of the shared collection, against the text that
was published with them and perplexities that others computed. Exits with 77 where it is absent.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

SKIPPED = 77
STORIES_PERPLEXITY = 4.173755679623124  # golden_stories260K.json: float64 numpy
# kv_quant_reference.json: llama.cpp over the first 24 stories, by the types of K and V.
HD32_PERPLEXITIES = {("f16", "f16"): 3.754, ("q8_0", "q8_0"): 3.762, ("q4_0", "q4_0"): 7.90,
                     ("q4_0", "f16"): 7.92, ("f16", "q4_0"): 3.765}


def shared_folder():
    place = os.environ.get("KVARTO_SHARED", Path(__file__).resolve().parents[3] / "shared")
    return Path(place) / "data"


def run(tool, *arguments):
    result = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if result.returncode != 0:
        sys.exit(f"{arguments}: exit {result.returncode}\n{result.stderr}")
    return result.stdout


def check(is_met, what):
    if not is_met:
        sys.exit(f"expected {what}")


def perplexity(tool, model, text, *options):
    out = run(tool, "eval", *model, "--text", text, "-c", 512, "--json", *options)
    return json.loads(out)["perplexity"]


def main(tool):
    models, text = shared_folder() / "models", shared_folder() / "text/tinystories_1000.json"
    stories = models / "stories260K"
    if not stories.is_dir():
        print("the shared collection of models is not there")
        return SKIPPED
    gguf, hf = stories / "stories260Ktok512.gguf", stories / "hf-f32"
    expected = (stories / "greedy_expected.txt").read_text().rstrip("\n")
    for model in ([gguf], [hf, "--tokenizer", stories / "tok512.model"]):
        out = run(tool, "run", *model, "-p", "", "-c", 512, "--kv-cache-dtype", "f32", "-n", 256)
        check(out.startswith(expected), f"{model} to tell the published story, found: {out}")
    for model in ([gguf], [hf, "--tokenizer", gguf],
                  [stories / "hf-bf16-sharded", "--tokenizer", gguf]):
        found = perplexity(tool, model, text, "--max-texts", 64, "--kv-cache-dtype", "f32")
        check(abs(found / STORIES_PERPLEXITY - 1) < 1e-4,
              f"{model} to have perplexity {STORIES_PERPLEXITY}, found {found}")
    for (key, value), known in HD32_PERPLEXITIES.items():
        found = perplexity(tool, [models / "stories260K-hd32/stories260K-hd32.gguf"], text,
                           "--max-texts", 24, "-ctk", key, "-ctv", value)
        check(abs(found / known - 1) < 0.01, f"K {key}, V {value}: {known}, found {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
