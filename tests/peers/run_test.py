"""Tests of bench/peers/run.py with engines that answer from a table instead of computing."""

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
SPEC = importlib.util.spec_from_file_location("peers_run", ROOT / "bench/peers/run.py")
run = importlib.util.module_from_spec(SPEC)
sys.modules["peers_run"] = run
SPEC.loader.exec_module(run)

ROWS = """
# a comment
one decode gqa 64 8 128 128 4096 f16 4 16 --arith f16
two decode mla 16 1 576 512 4096 f16 - -
"""

# 100 us, 200 us and 400 us in the three rounds; says what it was asked.
KVARTO = """#!{python}
import json, sys
from pathlib import Path
log = Path(__file__).with_suffix(".log")
count = log.read_text().count("\\n") if log.exists() else 0
with log.open("a") as file: file.write(" ".join(sys.argv[1:]) + "\\n")
if "mla" in sys.argv: sys.exit("kvarto: error: --arch: found mla")
print(json.dumps([{{"median_us": 100 * 2 ** (count % 3), "max_rel_error": 1e-3, "kernel": "k", "isa": "i",
                    "arith": "f16", "runs": 5}}]))
"""

PEER = """#!{python}
import sys
times = iter({times})
for line in sys.stdin:
    if line.startswith("prepare"):
        with open(__file__ + ".log", "a") as file: file.write(line)
        answer = {ready!r}
    else:
        answer = f"timed median_us={{next(times)}} runs=3 quiet=3"
    if answer == "abort":
        sys.exit("GGML_ASSERT(false) failed")
    print(answer, flush=True)
"""


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.kvarto = program(self.folder / "kvarto", KVARTO.format(python=sys.executable))
        (self.folder / "rows.txt").write_text(ROWS)

    def peer(self, name, times, ready="ready cache_bytes=1 max_rel_error=2e-3"):
        return program(self.folder / name, PEER.format(python=sys.executable, times=times, ready=ready))

    def main(self, drivers, *arguments):
        """Exit code, standard output and error of a run whose drivers are these."""
        def build(peer, _folder, _build):
            if peer.name not in drivers:
                raise run.Refusal("not there")
            return drivers[peer.name]

        out, err = io.StringIO(), io.StringIO()
        argv = ["run.py", str(self.folder), "--kvarto", str(self.kvarto), *arguments]
        with mock.patch.object(run, "build_driver", build), mock.patch.object(run, "HERE", self.folder), \
                mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            try:
                code = run.main()
            except SystemExit as stop:
                code = stop.code
                err.write(str(code))
        return code, out.getvalue(), err.getvalue()

    def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds(self):
        # 500 / 100, 600 / 200 and 1600 / 400.
        peer = self.peer("ik", [500, 600, 1600])
        code, out, _ = self.main({"ik_llama.cpp": peer}, "--rows", "one", "--json")
        engine = json.loads(out)["rows"][0]["engines"]["ik_llama.cpp"]
        self.assertEqual((engine["ratio"], engine["lowest"], engine["highest"]), (4, 3, 5))
        self.assertEqual((engine["median_us"], engine["goal"], code), (600, 4, 0))

    def test_a_missed_goal_is_said_and_is_exit_code_1(self):
        peer = self.peer("ik", [399, 798, 1596])
        code, out, _ = self.main({"ik_llama.cpp": peer}, "--rows", "one")
        self.assertEqual(code, 1)
        self.assertIn("3.99 x Kvarto (3.99 to 3.99)  goal 4: missed", out)

    def test_both_peers_take_turns_with_kvarto(self):
        drivers = {"ik_llama.cpp": self.peer("ik", [500, 1000, 2000]), "llama.cpp": self.peer("ll", [1700, 3400, 6800])}
        code, out, _ = self.main(drivers, "--rows", "one", "--threads", "2")
        self.assertEqual(code, 0)
        self.assertIn("5.00 x Kvarto", out)
        self.assertIn("17.00 x Kvarto", out)
        asked = (self.folder / "kvarto.log").read_text().splitlines()
        self.assertEqual(len(asked), 3)
        for word in ("--kv-heads 8", "--head-dim 128", "--kv-len 4096", "--threads 2", "--arith f16", "--kv-dtype f16"):
            self.assertIn(word, asked[0])
        prepared = (self.folder / "ll.log").read_text().splitlines()
        self.assertEqual(len(prepared), 1)
        for word in ("q_heads=64", "kv_heads=8", "kv_len=4096", "q_len=1", "type=f16", "threads=2", "latent=0"):
            self.assertIn(word, prepared[0].split())

    def test_a_row_that_kvarto_cannot_run_is_left_out_with_its_reason(self):
        code, out, err = self.main({"llama.cpp": self.peer("ll", [1] * 9)}, "--rows", "two")
        self.assertEqual((code, out), (0, ""))
        self.assertIn("two: left out: kvarto: --arch: found mla", err)

    def test_a_peer_that_ends_is_left_out_and_the_other_goes_on(self):
        drivers = {"ik_llama.cpp": self.peer("ik", [], "abort"), "llama.cpp": self.peer("ll", [1600, 3200, 6400])}
        code, out, _ = self.main(drivers, "--rows", "one")
        self.assertEqual(code, 0)
        self.assertIn("left out: it ended: GGML_ASSERT(false) failed", out)
        self.assertIn("16.00 x Kvarto", out)

    def test_a_peer_that_says_no_is_left_out_with_its_words(self):
        peer = self.peer("ll", [], "error this ggml has no such type")
        _, out, _ = self.main({"llama.cpp": peer}, "--rows", "one")
        self.assertIn("left out: this ggml has no such type", out)

    def test_no_peer_at_all_is_exit_code_3(self):
        code, _, err = self.main({})
        self.assertEqual(code, 3)
        for text in ("ik_llama.cpp: left out: not there", "llama.cpp: left out: not there", "no peer to measure"):
            self.assertIn(text, err)

    def test_an_unknown_row_is_an_error(self):
        code, _, err = self.main({}, "--rows", "three")
        self.assertNotEqual(code, 0)
        self.assertIn("no row of rows.txt is called three", err)

    def test_what_is_missing_of_a_peer_is_named(self):
        cases = [(self.folder / "none", "no folder")]
        bare = self.folder / "bare"
        bare.mkdir()
        cases.append((bare, "no ggml.h"))
        unbuilt = self.folder / "unbuilt"
        (unbuilt / "ggml/include").mkdir(parents=True)
        (unbuilt / "ggml/include/ggml.h").touch()
        cases.append((unbuilt, "no libggml.so"))
        for folder, reason in cases:
            with self.assertRaisesRegex(run.Refusal, reason):
                run.find_peer(folder)

    def test_headers_and_libraries_are_found_in_both_lay_outs(self):
        for include, library in (("include", "lib"), ("ggml/include", "build/bin")):
            peer = self.folder / include.replace("/", "_")
            (peer / include).mkdir(parents=True)
            (peer / library).mkdir(parents=True)
            (peer / include / "ggml.h").touch()
            (peer / library / "libggml.so").touch()
            self.assertEqual(run.find_peer(peer), (peer / include, [peer / library / "libggml.so"]))

    def test_rows_that_are_not_rows_are_refused(self):
        for text, reason in (("a decode gqa 1", "found 4 columns"), ("a encode gqa 1 1 1 1 1 f16 - -", "call"),
                             ("a decode gqa x 1 1 1 1 f16 - -", "'x'"), ("a decode gqa 1 1 1 1 1 f16 z -", "'z'")):
            with self.assertRaisesRegex(run.Refusal, reason):
                list(run.read_rows(text))

    def test_every_row_of_the_table_can_be_asked_of_both_sides(self):
        asked = mock.Mock(kvarto="kvarto", threads=1, seconds=1, huge_pages=False)
        rows = list(run.read_rows((ROOT / "bench/peers/rows.txt").read_text()))
        self.assertEqual(len({row["name"] for row in rows}), len(rows))
        for row in rows:
            self.assertEqual(row["q_heads"] % row["kv_heads"], 0, row["name"])
            self.assertIn(row["call"], run.kvarto_command("kvarto", row, asked))
            for peer in run.PEERS:
                line = run.peer_line(peer, row, asked)
                self.assertEqual("latent=1" in line, row["arch"] == "mla")


if __name__ == "__main__":
    unittest.main()
