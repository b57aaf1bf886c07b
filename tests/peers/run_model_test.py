"""Tests of bench/peers/run_model.py with programs that answer from a table instead of running a model."""

import contextlib
import importlib.util
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
SPEC = importlib.util.spec_from_file_location("peers_run_model", ROOT / "bench/peers/run_model.py")
run_model = importlib.util.module_from_spec(SPEC)
sys.modules["peers_run_model"] = run_model
SPEC.loader.exec_module(run_model)

# Behind no prompt 100 tokens/s; behind a prompt 50, of which attention says 8 ms a token.
KVARTO = """#!{python}
import sys
words = sys.argv[1:]
with open(__file__ + ".log", "a") as file: file.write(" ".join(words) + "\\n")
text = open(words[words.index("-f") + 1]).read()
if {is_broken}: sys.exit("kvarto: error: no such model")
if text == "":
    print("prefill: 1 tokens in 10.00 ms, 100.00 tokens/s; attention 0.00 us a token", file=sys.stderr)
    print("decode: 16 tokens in 160.00 ms, 100.00 tokens/s; attention 10.00 us a token", file=sys.stderr)
else:
    count = len(text.split()) + 1
    print(f"prefill: {{count:,}} tokens in 1.00 s, 400.00 tokens/s; attention 1.00 ms a token", file=sys.stderr)
    print("decode: 16 tokens in 320.00 ms, 50.00 tokens/s; attention 8.00 ms a token", file=sys.stderr)
"""

# 10 ms a token behind no prompt, `decode_ms` behind one; 200 tokens of a prompt a second.
BENCH = """#!{python}
import json, sys
words = sys.argv[1:]
value = lambda name: int(words[words.index(name) + 1])
if value("-p"):
    print(json.dumps([{{"avg_ns": value("-p") / {prompt} * 1e9}}]))
else:
    print(json.dumps([{{"avg_ns": value("-n") * ({decode_ms} if value("-d") else 10) * 1e6}}]))
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class Model(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_main(self, *words, decode_ms=30, prompt=200, is_broken=False):
        tool = program(self.folder / "kvarto", KVARTO.format(python=sys.executable, is_broken=is_broken))
        program(self.folder / "peers/build/bin/llama-bench",
                BENCH.format(python=sys.executable, decode_ms=decode_ms, prompt=prompt))
        out, err = io.StringIO(), io.StringIO()
        command = ["run_model.py", str(self.folder / "peers"), "m.gguf", "--kvarto", str(tool), *words]
        with mock.patch.object(sys, "argv", command), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_model.main()
        return code, out.getvalue(), err.getvalue()

    def test_ratios_are_the_peers_time_over_ours(self):
        code, out, _ = self.run_main("--contexts", "8192", "--threads", "2", "--rounds", "2", "--json")
        self.assertEqual(code, 0)
        row = json.loads(out)["rows"][0]
        self.assertEqual((row["context"], row["threads"], row["missed"]), (8192, 2, []))
        self.assertAlmostEqual(row["ratios"]["prefill"], 2)  # 400 and 200 tokens/s
        self.assertAlmostEqual(row["ratios"]["decode"], 1.5)  # 20 and 30 ms
        # Behind the prompt 20 - 10 and 30 - 10 ms; of our 10 and 8 ms the larger counts.
        self.assertAlmostEqual(row["kvarto"]["attention_ms"], 10)
        self.assertAlmostEqual(row["kvarto"]["own_attention_ms"], 8)
        self.assertAlmostEqual(row["ratios"]["attention"], 2)

    def test_both_are_asked_for_the_same_threads_tokens_and_types(self):
        self.run_main("--contexts", "512", "--threads", "1", "--rounds", "1", "--type", "q8_0", "--tokens", "4")
        asked = (self.folder / "kvarto.log").read_text().splitlines()
        self.assertEqual(len(asked), 2)  # behind nothing, and behind 512 tokens
        for line in asked:
            self.assertIn("-n 5 --ignore-eos", line)  # the first comes from the prompt
            self.assertIn("-t 1 --kv-cache-dtype q8_0", line)

    def test_goals_that_are_missed_are_named_and_exit_1(self):
        code, out, _ = self.run_main("--contexts", "8192", "--threads", "1", "--rounds", "1", decode_ms=15, prompt=800)
        self.assertEqual(code, 1)
        # 0.75 of the peer's tokens where 0.8 are wanted, half its attention, half its prompt.
        self.assertIn("missed: prefill, decode, attention", out)

    def test_long_contexts_are_measured_once(self):
        code, out, _ = self.run_main("--contexts", "600", "--long", "500", "--threads", "1", "--rounds", "3", "--json")
        self.assertEqual(code, 0)
        self.assertEqual(len(json.loads(out)["rows"][0]["kvarto"]["rounds"]["decode"]), 1)

    def test_a_tool_that_fails_is_quoted(self):
        code, _, err = self.run_main("--contexts", "512", is_broken=True)
        self.assertEqual(code, 3)
        self.assertIn("no such model", err)

    def test_without_a_peer_the_exit_code_is_3(self):
        err = io.StringIO()
        with mock.patch.object(sys, "argv", ["run_model.py", str(self.folder), "m.gguf"]), \
                contextlib.redirect_stderr(err):
            self.assertEqual(run_model.main(), 3)
        self.assertIn("no llama-bench anywhere", err.getvalue())


if __name__ == "__main__":
    unittest.main()
