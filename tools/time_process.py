"""usage: time_process.py TOOL

Times `kvarto plan` on a config.json as a whole process, warm: median, P99 and deviation.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 200
WARM_UP_RUNS = 20
TARGET_MS = 10  # CONTRIBUTING.md

# The geometry of Llama-3.1-8B.
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "max_position_embeddings": 131072,
    "vocab_size": 128256,
}


def milliseconds(command):
    # posix_spawn costs less than a fork of this interpreter, which is not what is measured.
    silent = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    begin = time.perf_counter()
    child = os.posix_spawn(command[0], command, os.environ, file_actions=silent)
    _, status = os.waitpid(child, 0)
    elapsed = time.perf_counter() - begin
    if status != 0:
        sys.exit(f"{' '.join(command)}: exit {os.waitstatus_to_exitcode(status)}")
    return elapsed * 1e3


def report(name, command):
    for _ in range(WARM_UP_RUNS):
        milliseconds(command)
    times = sorted(milliseconds(command) for _ in range(RUNS))
    median = statistics.median(times)
    print(f"{name:<44} median {median:6.2f} ms   P99 {times[int(0.99 * RUNS)]:6.2f} ms   "
          f"deviation {statistics.pstdev(times):5.2f} ms   {RUNS} runs   target {TARGET_MS} ms")


def main():
    tool = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(CONFIG))
        # The floor: what starting any process of this machine costs.
        report("an empty process (true)", ["/bin/true"])
        report("kvarto plan config.json", [tool, "plan", str(config)])
        report("kvarto plan llama-3.1-8b (catalogue)", [tool, "plan", "llama-3.1-8b"])
        report("kvarto plan deepseek-v4-flash --explain", [tool, "plan", "deepseek-v4-flash", "--explain"])


if __name__ == "__main__":
    main()
