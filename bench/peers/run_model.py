"""usage: run_model.py DIR MODEL.gguf [--kvarto TOOL] [--contexts N,...] [--threads N,...] [--rounds N] ...

Times a whole model in `kvarto run` and in llama.cpp's `llama-bench`, in turn, on the same file with the
same threads: prompts of N tokens, and tokens decoded behind them. DIR holds a built llama.cpp
(docs/peers.md). Exit 1 if a goal was missed, 3 if there is no peer.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Kvarto's speed over the peer's, by context: what is aimed at.
GOALS = {("attention", 8192): 1.0, ("decode", 8192): 0.8, ("decode", 32768): 1.0}
PREFILL_GOAL = 0.7

PREFILL = re.compile(r"^prefill: ([\d,]+) tokens? in .*?, ([\d.]+) tokens/s; attention ([\d.]+) (\w+) a token", re.M)
DECODE = re.compile(PREFILL.pattern.replace("prefill", "decode"), re.M)
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}


class Refusal(Exception):
    """Something that cannot be measured, and why."""


@dataclass
class Times:
    """Seconds a token of one program, one number a round."""

    prefill: list = field(default_factory=list)
    decode: list = field(default_factory=list)
    empty: list = field(default_factory=list)  # decoded behind no prompt
    own_attention: list = field(default_factory=list)  # of decoding, where the program says it

    def median(self, what):
        return statistics.median(getattr(self, what))

    def attention(self):
        """What a token costs more behind the prompt than behind none, within a round."""
        return statistics.median(behind - none for behind, none in zip(self.decode, self.empty))


def output_of(command, stream):
    made = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if made.returncode != 0:
        last = (made.stderr.strip().splitlines() or ["no message"])[-1]
        raise Refusal(f"{command[0]}: exit {made.returncode}: {last}")
    return getattr(made, stream)


def time_kvarto(asked, context, threads, times):
    """A prompt of about `context` tokens, 0 for the empty one, and tokens behind it."""
    # One token a word in every vocabulary of the families that run; speed does not depend on it.
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as prompt:
        prompt.write(" the" * max(context - 1, 0))
        prompt.flush()
        text = output_of([asked.kvarto, "run", asked.model, "-f", prompt.name, "-n", asked.tokens + 1, "--ignore-eos",
                          "-c", context + asked.tokens + 8, "-t", threads, "--kv-cache-dtype", asked.type], "stderr")
    prefill, decode = PREFILL.search(text), DECODE.search(text)
    if not prefill or not decode:
        raise Refusal(f"kvarto run said no speed:\n{text}")
    num_tokens = int(prefill[1].replace(",", ""))
    if context and abs(num_tokens - context) > context / 50:
        raise Refusal(f"the prompt has {num_tokens} tokens, {context} were wanted: another vocabulary")
    if not context:
        times.empty.append(1 / float(decode[2]))
        return
    times.prefill.append(1 / float(prefill[2]))
    times.decode.append(1 / float(decode[2]))
    times.own_attention.append(float(decode[3]) * UNITS[decode[4]])


def time_peer(asked, bench, context, threads, times):
    common = [bench, "-m", asked.model, "-t", threads, "-ctk", asked.type, "-ctv", asked.type, "-fa", asked.flash,
              "-r", 1, "-o", "json"]
    if context:
        # A warm-up would be another whole prompt; Kvarto has none either. Before tokens it is one token.
        prompt = json.loads(output_of([*common, "--no-warmup", "-p", context, "-n", 0], "stdout"))[0]
        times.prefill.append(prompt["avg_ns"] * 1e-9 / context)
    tokens = json.loads(output_of([*common, "-p", 0, "-n", asked.tokens, "-d", context], "stdout"))[0]
    (times.decode if context else times.empty).append(tokens["avg_ns"] * 1e-9 / asked.tokens)


def measure(asked, bench, context, threads):
    kvarto, peer = Times(), Times()
    for _ in range(asked.rounds if context <= asked.long else 1):
        for num_tokens in (0, context):
            time_kvarto(asked, num_tokens, threads, kvarto)
            time_peer(asked, bench, num_tokens, threads, peer)
        print(f"  {context} tokens, {threads} threads: decode {1 / kvarto.decode[-1]:.1f} and {1 / peer.decode[-1]:.1f} "
              "tokens/s", file=sys.stderr)
    return kvarto, peer


def row_of(context, threads, times):
    """One line of the table: both programs' numbers, and Kvarto's speed over the peer's."""
    row = {"context": context, "threads": threads}
    for name, timed in zip(("kvarto", "llama.cpp"), times):
        row[name] = {"prefill_tokens_per_s": 1 / timed.median("prefill"),
                     "decode_tokens_per_s": 1 / timed.median("decode"), "attention_ms": timed.attention() * 1e3,
                     "rounds": vars(timed)}
    row["kvarto"]["own_attention_ms"] = times[0].median("own_attention") * 1e3
    ratios = {what: times[1].median(what) / times[0].median(what) for what in ("prefill", "decode")}
    # Of Kvarto's two times, this one and what its own clock says (with writing the rows), the larger one.
    ours = max(row["kvarto"]["own_attention_ms"], row["kvarto"]["attention_ms"])
    ratios["attention"] = max(row["llama.cpp"]["attention_ms"], 0) / ours
    row["ratios"] = ratios
    row["missed"] = [what for what, ratio in ratios.items()
                     if ratio < (PREFILL_GOAL if what == "prefill" else GOALS.get((what, context), 0))]
    return row


def print_rows(rows):
    print("| threads | context | prefill tokens/s | decode tokens/s | attention ms a token (its own clock) |\n"
          "|---|---|---|---|---|")
    for row in rows:
        ours, theirs, ratios = row["kvarto"], row["llama.cpp"], row["ratios"]
        cells = [f"{ours[key]:.{digits}f} : {theirs[key]:.{digits}f} = {ratios[what]:.2f}"
                 for key, what, digits in (("prefill_tokens_per_s", "prefill", 0),
                                           ("decode_tokens_per_s", "decode", 1))]
        cells.append(f"{ours['attention_ms']:.2f} ({ours['own_attention_ms']:.2f}) : "
                     f"{theirs['attention_ms']:.2f} = {ratios['attention']:.2f}")
        missed = f" missed: {', '.join(row['missed'])}" if row["missed"] else ""
        print(f"| {row['threads']} | {row['context']} | {' | '.join(cells)} |{missed}")


def numbers(text):
    return [int(word) for word in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description="A whole model in Kvarto and in llama.cpp, in turn.")
    parser.add_argument("folder", metavar="DIR", help="holds a built llama.cpp with llama-bench")
    parser.add_argument("model", metavar="MODEL", help="a .gguf that both run")
    parser.add_argument("--kvarto", default=str(ROOT / "build/kvarto"), help="the built tool")
    parser.add_argument("--contexts", type=numbers, default=[512, 2048, 8192, 32768])
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", type=int, default=8192, help="longer contexts are measured once")
    parser.add_argument("--tokens", type=int, default=16, help="decoded in a round")
    parser.add_argument("--type", default="f16", help="of both caches")
    parser.add_argument("--flash", default="on", choices=("on", "off"), help="the peer's attention")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    asked = parser.parse_args()
    if min(asked.contexts) < 2 or min(asked.threads) < 1 or asked.rounds < 1 or asked.tokens < 1:
        parser.error("--contexts, --threads, --rounds and --tokens: expected more than 0")
    return asked


def main():
    asked = arguments()
    bench = next(iter(sorted(Path(asked.folder).resolve().rglob("llama-bench"))), None)
    if bench is None:
        print(f"error: no llama-bench anywhere in {asked.folder}; docs/peers.md says what is looked for", file=sys.stderr)
        return 3
    rows = []
    try:
        for threads in asked.threads:
            rows += [row_of(context, threads, measure(asked, bench, context, threads)) for context in asked.contexts]
    except Refusal as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 3
    if asked.json:
        print(json.dumps({"schema": "kvarto.model_peers/1", "type": asked.type, "flash": asked.flash, "rows": rows}, indent=2))
    else:
        print_rows(rows)
    return 1 if any(row["missed"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
