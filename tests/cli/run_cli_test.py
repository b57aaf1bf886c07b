"""usage: run_cli_test.py TOOL FILE.test

Runs the commands of a text file and checks what they print. One directive a line:

  file NAME         the following lines, up to a line with a single dot, become a file
  run ARGUMENTS     runs the tool in a folder of its own, where those files are
  sh COMMAND        runs a shell command; the tool is on its path, $TESTS is this folder
  exit N            the exit code of the last command; every command needs one
  out TEXT          its standard output contains TEXT;  no-out TEXT  it does not
  err TEXT          its standard error contains TEXT;   no-err TEXT  it does not
  out-is TEXT       its standard output is exactly TEXT
  out-empty         nothing on standard output;         err-empty    nothing on standard error
  json PATH VALUE   the value at PATH of the JSON document on standard output: `engines.0.bytes 17`
  json-sum PATH OF  the numbers at PATH add up to the number at OF: `engines.0.ledger.*.bytes
                    engines.0.bytes`
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path


def values_at(document, path):
    """The values at `path`; `*` stands for every element of a list or an object."""
    found = [document]
    for step in path.split("."):
        following = []
        for value in found:
            if step == "*":
                following += value if isinstance(value, list) else list(value.values())
            elif isinstance(value, list):
                following.append(value[int(step)])
            else:
                following.append(value[step])
        found = following
    return found


class Run:
    def __init__(self, tool, folder):
        self.tool, self.folder = tool, folder
        self.result, self.command, self.has_exit = None, "", True
        self.failures = []
        self.environment = {**os.environ, "NO_COLOR": "1",
                            "TESTS": str(Path(__file__).resolve().parent),
                            "PATH": f"{Path(tool).parent}:{os.environ['PATH']}"}

    def start(self, words, command):
        self.finish()
        self.command, self.has_exit = command, False
        self.result = subprocess.run(words, cwd=self.folder, env=self.environment, text=True,
                                     capture_output=True, errors="replace", timeout=60)

    def finish(self):
        if not self.has_exit:
            self.failures.append(f"{self.command}: no `exit` says what its code must be")

    def expect(self, is_met, what):
        if not is_met:
            self.failures.append(f"{self.command}: expected {what}\nexit {self.result.returncode}\n"
                                 f"--- stdout\n{self.result.stdout}--- stderr\n{self.result.stderr}")

    def check_json(self, name, rest):
        path, expected = re.match(r"(\S+)\s+(.*)", rest).groups()
        try:
            document = json.loads(self.result.stdout)
            found = values_at(document, path)
            if name == "json-sum":
                total = values_at(document, expected)
                self.expect([sum(found)] == total, f"{path} to add up to {total}, found {sum(found)}")
            else:
                value = json.loads(expected)
                self.expect(found == (value if "*" in path else [value]),
                            f"{path} to be {expected}, found {json.dumps(found)}")
        except (ValueError, KeyError, IndexError, TypeError) as error:
            self.expect(False, f"a JSON document with {path}: {error!r}")

    def directive(self, name, rest):
        out, err = (self.result.stdout, self.result.stderr) if self.result else ("", "")
        if name == "run":
            self.start([self.tool, *shlex.split(rest)], f"kvarto {rest}")
        elif name == "sh":
            self.start(["bash", "-c", rest], rest)
        elif name == "exit":
            self.has_exit = True
            self.expect(self.result.returncode == int(rest), f"exit {rest}")
        elif name in ("out", "err"):
            self.expect(rest in (out if name == "out" else err), f"{name} to contain: {rest}")
        elif name in ("no-out", "no-err"):
            self.expect(rest not in (out if name == "no-out" else err), f"{name[3:]} without: {rest}")
        elif name == "out-is":
            self.expect(out == rest, f"out to be exactly: {rest}")
        elif name in ("out-empty", "err-empty"):
            self.expect((out if name == "out-empty" else err) == "", name)
        elif name in ("json", "json-sum"):
            self.check_json(name, rest)
        else:
            self.failures.append(f"unknown directive {name}")


def main():
    tool, test = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        run = Run(tool, folder)
        lines = iter(test.read_text().splitlines())
        for line in lines:
            if not line.strip() or line.startswith("#"):
                continue
            name, _, rest = line.partition(" ")
            if name == "file":
                content = "\n".join(iter(lambda: next(lines), ".")) + "\n"
                path = Path(folder) / rest
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
            else:
                run.directive(name, rest)
        run.finish()
    for failure in run.failures:
        print(failure)
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
