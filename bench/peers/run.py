"""usage: run.py DIR [--kvarto TOOL] [--build DIR] [--threads N] [--rounds N] [--rows NAME,...] ...

Times attention of Kvarto and of other engines in turn: a round is one measurement of each, and a
ratio is taken within its round. DIR holds `llama.cpp` and `ik_llama.cpp`, or one of them, each with
its ggml.h and built shared libraries (docs/peers.md). Exit 1 if a goal was measured and missed.
"""

import argparse
import fnmatch
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

COLUMNS = ("name", "call", "arch", "q_heads", "kv_heads", "qk_dim", "v_dim", "kv_len", "type", "ik", "ll")
CALLS = ("decode", "prefill")
NUMBERS = ("q_heads", "kv_heads", "qk_dim", "v_dim", "kv_len")


@dataclass(frozen=True)
class Peer:
    name: str
    goal: str  # its column of rows.txt
    # Elements of a row of MLA's K before those that are V as well: where each engine puts the rotated part.
    v_offset: int


PEERS = (Peer("ik_llama.cpp", "ik", 64), Peer("llama.cpp", "ll", 0))


class Refusal(Exception):
    """Something that cannot be measured, and why."""


def read_rows(text):
    """Yields a dictionary for each row; `rest` is a list."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < len(COLUMNS):
            raise Refusal(f"rows.txt:{number}: found {len(words)} columns, expected at least {len(COLUMNS)}")
        row = dict(zip(COLUMNS, words), rest=words[len(COLUMNS):])
        if row["call"] not in CALLS:
            raise Refusal(f"rows.txt:{number}: call: found {row['call']}, expected {' or '.join(CALLS)}")
        try:
            row.update((key, int(row[key])) for key in NUMBERS)
            row.update((key, None if row[key] == "-" else float(row[key])) for key in ("ik", "ll"))
        except ValueError as error:
            raise Refusal(f"rows.txt:{number}: {error}") from None
        yield row


def kvarto_command(tool, row, asked):
    command = [tool, "bench", row["call"], "--arch", row["arch"], "--q-heads", row["q_heads"]]
    if row["arch"] != "mla":  # whose defaults are these widths
        command += ["--kv-heads", row["kv_heads"], "--head-dim", row["qk_dim"], "--v-head-dim", row["v_dim"]]
    command += ["--kv-len", row["kv_len"], "--kv-dtype", row["type"], "--threads", asked.threads,
                "--seconds", asked.seconds, "--json", *row["rest"]]
    return [str(word) for word in command]


def peer_line(peer, row, asked):
    is_latent = row["arch"] == "mla"
    words = {**{key: row[key] for key in (*NUMBERS, "type")},
             "q_len": row["kv_len"] if row["call"] == "prefill" else 1,
             "latent": int(is_latent), "v_offset": peer.v_offset if is_latent else 0,
             "threads": asked.threads, "huge_pages": int(asked.huge_pages)}
    return "prepare " + " ".join(f"{key}={value}" for key, value in words.items())


def find_peer(folder):
    """The folder of ggml.h and the libraries to link; Refusal if one of them is not there."""
    if not folder.is_dir():
        raise Refusal(f"no folder {folder}")
    for part in ("include", "ggml/include"):
        include = folder / part
        if (include / "ggml.h").exists():
            break
    else:
        raise Refusal(f"no ggml.h in {folder}/include or {folder}/ggml/include")
    libraries = []
    for name in ("libggml.so", "libggml-cpu.so", "libggml-base.so"):
        libraries += sorted(folder.rglob(name))[:1]
    if not libraries:
        raise Refusal(f"no libggml.so anywhere in {folder}; build it with shared libraries")
    return include, libraries


def build_driver(peer, folder, build):
    include, libraries = find_peer(folder)
    target = build / peer.name
    configure = ["cmake", "-S", str(HERE), "-B", str(target), "-DCMAKE_BUILD_TYPE=Release",
                 f"-DGGML_INCLUDE={include}", "-DGGML_LIBRARIES=" + ";".join(map(str, libraries))]
    for command in (configure, ["cmake", "--build", str(target)]):
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode != 0:
            raise Refusal("its driver cannot be built:\n" + (made.stdout + made.stderr).strip())
    return target / "ggml_driver"


class Driver:
    """One peer's process. ggml may end it; it is started again for the next row."""

    def __init__(self, program):
        self.program = program
        self.process = None

    def ask(self, line):
        """The words of the answer, as a dictionary."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen([str(self.program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True)
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().split()
        except BrokenPipeError:
            answer = []
        if not answer:
            last = self.process.stderr.read().strip().splitlines()[:1]
            raise Refusal("it ended" + "".join(f": {text}" for text in last))
        if answer[0] == "error":
            raise Refusal(" ".join(answer[1:]))
        return dict(word.split("=", 1) for word in answer[1:])

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()
        self.process = None


@dataclass
class Times:
    """One engine's rounds of one row."""

    rounds_us: list = field(default_factory=list)
    error: float = 0
    is_quiet: bool = True  # peers; Kvarto leaves out disturbed runs itself
    refusal: str = ""

    def median_us(self):
        return statistics.median(self.rounds_us)


def time_kvarto(command, times):
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        last = (ran.stderr.strip().splitlines() or [f"exit {ran.returncode}"])[-1]
        raise Refusal(last.removeprefix("kvarto: ").removeprefix("error: "))
    report = json.loads(ran.stdout)
    report = report[0] if isinstance(report, list) else report
    times.rounds_us.append(report["median_us"])
    times.error = report["max_rel_error"]
    return report


def time_peer(driver, asked, times):
    answer = driver.ask(f"time seconds={asked.seconds}")
    times.rounds_us.append(float(answer["median_us"]))
    times.is_quiet &= int(answer["quiet"]) > 0


def measure(row, drivers, asked):
    """Times by engine name; a peer that cannot has its refusal. Refusal if Kvarto cannot."""
    command = kvarto_command(asked.kvarto, row, asked)
    times = {"kvarto": Times(), **{peer.name: Times() for peer in drivers}}
    for round_number in range(asked.rounds):
        report = time_kvarto(command, times["kvarto"])
        for peer, driver in drivers.items():
            if times[peer.name].refusal:
                continue
            try:
                if round_number == 0:
                    times[peer.name].error = float(driver.ask(peer_line(peer, row, asked))["max_rel_error"])
                time_peer(driver, asked, times[peer.name])
            except Refusal as refusal:
                times[peer.name].refusal = str(refusal)
    for driver in drivers.values():
        driver.stop()  # its memory is the next row's
    return times, report


def ratios_of(times, peer):
    return [theirs / ours for theirs, ours in zip(times[peer].rounds_us, times["kvarto"].rounds_us)]


def result_of(row, times, report, drivers):
    engines = {}
    for name, timed in times.items():
        if timed.refusal:
            engines[name] = {"refusal": timed.refusal}
            continue
        engines[name] = {"median_us": timed.median_us(), "rounds_us": timed.rounds_us,
                         "max_rel_error": timed.error, "quiet": timed.is_quiet}
    for peer in drivers:
        if times[peer.name].refusal:
            continue
        ratios = ratios_of(times, peer.name)
        engines[peer.name].update(ratio=statistics.median(ratios), lowest=min(ratios), highest=max(ratios),
                                  goal=row[peer.goal])
    return {"row": row["name"], "kernel": report["kernel"], "isa": report["isa"], "arith": report["arith"],
            "kv_len": row["kv_len"], "type": row["type"], "engines": engines}


def misses_goal(engine):
    return engine.get("goal") is not None and engine["ratio"] < engine["goal"]


def print_result(result):
    print(f"{result['row']}: {result['kernel']} on {result['isa']}, arithmetic {result['arith']}")
    for name, engine in result["engines"].items():
        if "refusal" in engine:
            print(f"  {name:<14} left out: {engine['refusal']}")
            continue
        line = f"  {name:<14} {engine['median_us'] / 1e3:10.3f} ms"
        if "ratio" in engine:
            line += f"  {engine['ratio']:6.2f} x Kvarto ({engine['lowest']:.2f} to {engine['highest']:.2f})"
            if engine["goal"] is not None:
                line += f"  goal {engine['goal']:g}: {'missed' if misses_goal(engine) else 'reached'}"
        line += f"  rel. error {engine['max_rel_error']:.1e}"
        print(line + ("" if engine["quiet"] else "  (the machine was not quiet)"))
    sys.stdout.flush()


def arguments():
    parser = argparse.ArgumentParser(description="Kvarto's attention and that of other engines, in turn.")
    parser.add_argument("folder", nargs="?", metavar="DIR", help="holds llama.cpp and ik_llama.cpp")
    parser.add_argument("--kvarto", default=str(ROOT / "build/kvarto"), help="the built tool")
    parser.add_argument("--build", default=str(ROOT / "build/peers"), help="where the drivers are built")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="about so long a measurement takes")
    parser.add_argument("--rows", default="*", help="names or patterns, separated by commas")
    parser.add_argument("--huge-pages", action="store_true", help="the peers' caches in huge pages too")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    asked = parser.parse_args()
    if not asked.folder:
        parser.error("which folder? make bench-peers DIR=... (docs/peers.md)")
    if asked.threads < 1 or asked.rounds < 1 or not asked.seconds > 0:
        parser.error("--threads, --rounds and --seconds: expected more than 0")
    return asked


def chosen_rows(asked):
    patterns = asked.rows.split(",")
    rows = [row for row in read_rows((HERE / "rows.txt").read_text())
            if any(fnmatch.fnmatchcase(row["name"], pattern) for pattern in patterns)]
    if not rows:
        raise Refusal(f"--rows: no row of rows.txt is called {asked.rows}")
    return rows


def find_drivers(asked):
    drivers = {}
    for peer in PEERS:
        try:
            program = build_driver(peer, Path(asked.folder).resolve() / peer.name, Path(asked.build).resolve())
            drivers[peer] = Driver(program)
        except Refusal as refusal:
            print(f"{peer.name}: left out: {refusal}", file=sys.stderr)
    return drivers


def main():
    asked = arguments()
    try:
        rows = chosen_rows(asked)
    except Refusal as refusal:
        sys.exit(f"error: {refusal}")
    drivers = find_drivers(asked)
    if not drivers:
        print(f"error: {asked.folder} has no peer to measure; docs/peers.md says what is looked for", file=sys.stderr)
        return 3
    results = []
    for row in rows:
        try:
            results.append(result_of(row, *measure(row, drivers, asked), drivers))
        except Refusal as refusal:
            print(f"{row['name']}: left out: kvarto: {refusal}", file=sys.stderr)
            continue
        if not asked.json:
            print_result(results[-1])
    if asked.json:
        print(json.dumps({"schema": "kvarto.peers/1", "threads": asked.threads, "rows": results}, indent=2))
    missed = any(misses_goal(engine) for result in results for engine in result["engines"].values())
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
