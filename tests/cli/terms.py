"""Runs the commands of docs/terms.md: each prints the bold figures of its row.

usage: terms.py KVARTO DOCUMENT
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

COMMAND = re.compile(r"`(kvarto [^`]+)`")
BOLD = re.compile(r"\*\*([^*]+)\*\*")


def rows(text):
    """Yields (line number, command, figures) of the table rows; command is None where a row has none."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("|") or set(line) <= set("|- "):
            continue
        commands = COMMAND.findall(line.rsplit("|", 2)[1])
        yield number, commands[0] if commands else None, BOLD.findall(line)


def output_of(tool, command):
    words = shlex.split(command)[1:]
    run = subprocess.run([tool, *words], capture_output=True, text=True,
                         env={**os.environ, "NO_COLOR": "1"})
    if run.returncode != 0:
        return None, f"exit {run.returncode}: {run.stderr.strip()}"
    return " ".join(run.stdout.split()), ""


def has(output, figure):
    """Whether the figure stands in the output as a whole: 128 is not found in 1,128 or 128.5."""
    return re.search(rf"(?<![\w.,]){re.escape(figure)}(?![\w]|[.,]\d)", output) is not None


def main():
    tool, document = sys.argv[1], Path(sys.argv[2])
    failures, num_figures, outputs = [], 0, {}
    for number, command, figures in rows(document.read_text()):
        where = f"{document.name}:{number}"
        if command is None:
            if figures:
                failures.append(f"{where}: bold figures, but no command that prints them")
            continue
        if not figures:
            failures.append(f"{where}: `{command}`: no bold figure to look for")
        if command not in outputs:
            outputs[command] = output_of(tool, command)
        output, problem = outputs[command]
        if output is None:
            failures.append(f"{where}: `{command}`: {problem}")
            continue
        num_figures += len(figures)
        failures.extend(f"{where}: `{command}` does not print {figure}"
                        for figure in figures if not has(output, figure))
    # An empty page would pass for the wrong reason.
    if num_figures < 50:
        failures.append(f"{document.name}: found {num_figures} figures, expected at least 50")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
