"""What the documents name exists: paths, make targets, commands and their options; shown output is real."""

import os
import re
import shlex
import subprocess
from pathlib import Path

TOP_FILES = ("README.md", "CONTRIBUTING.md", "THIRD_PARTY.md", "SECURITY.md")
SUFFIXES = (".h", ".cc", ".md", ".sh", ".py", ".txt", ".json", ".cmake")
# Files of models, which documents name and the tree does not have.
MODEL_FILES = {"config.json", "tokenizer.json"}
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def documents(root):
    yield from (root / name for name in TOP_FILES if (root / name).exists())
    yield from sorted((root / "docs").rglob("*.md"))


def is_path(text, root):
    if not re.fullmatch(r"\.?[\w.*-]+(/[\w.*-]+)*/?", text) or text.startswith(("build", "-")):
        return False
    if "/" in text:
        return (root / text.split("/")[0]).exists()
    return text.endswith(SUFFIXES) and not text.startswith(".") and text not in MODEL_FILES


def path_exists(text, root):
    if "/" in text:
        return bool(list(root.glob(text.rstrip("/"))))
    return any(root.rglob(text))


def make_targets(root):
    targets = re.findall(r"^([a-z]+):", (root / "Makefile").read_text(), re.MULTILINE)
    return set(targets)


class Tool:
    """The built tool, asked once for each help text."""

    def __init__(self, path):
        self.path = path
        self.helps = {}

    def help(self, *words):
        if words not in self.helps:
            run = subprocess.run([self.path, *words, "--help"], capture_output=True, text=True)
            self.helps[words] = run.stdout if run.returncode == 0 else None
        return self.helps[words]

    def violation(self, command):
        words = command.split()[1:]
        if not words or words[0].startswith("-") or not re.fullmatch(r"[a-z]+", words[0]):
            return None
        text = self.help(words[0])
        if text is None:
            return f"no command {words[0]}"
        for word in words[1:]:
            name = word.split("=")[0].strip("[]")
            if name in ("--help", "-h"):
                continue
            if re.fullmatch(r"--?[a-z][\w-]*", name) and not re.search(rf"(?<![\w-]){name}(?![\w-])", text):
                return f"{words[0]} has no option {name}"
        return None


def commands_in(text):
    """Yields the commands in back-ticks, and those on lines of code blocks."""
    outside = FENCE.sub("", text)
    yield from (match.group(1) for match in CODE.finditer(outside))
    for match in FENCE.finditer(text):
        for line in match.group(2).splitlines():
            line = line.strip().removeprefix("$ ").removeprefix("build/")
            if line.startswith(("kvarto ", "make ")):
                yield line.split("  #")[0].split(" | ")[0].strip()


def name_violations(path, root, tool):
    text = path.read_text()
    relative = path.relative_to(root).as_posix()
    for code in commands_in(text):
        code = code.removeprefix("build/")
        if code.startswith("make "):
            for target in code.split()[1:]:
                if re.fullmatch(r"[a-z]+", target) and target not in make_targets(root):
                    yield f"{relative}: `{code}`: no such make target"
        elif code.startswith("kvarto ") and tool is not None:
            found = tool.violation(code)
            if found:
                yield f"{relative}: `{code}`: {found}"
        elif is_path(code, root) and not path_exists(code, root):
            yield f"{relative}: `{code}` does not exist"


def shown_outputs(text):
    """Yields (command, output) for each `$ kvarto ...` of the console blocks."""
    for match in FENCE.finditer(text):
        if match.group(1) != "console":
            continue
        parts = re.split(r"^\$ ((?:build/)?kvarto .*)\n", match.group(2), flags=re.MULTILINE)
        yield from zip(parts[1::2], parts[2::2])


def output_violations(path, root, tool):
    relative = path.relative_to(root).as_posix()
    environment = {**os.environ, "NO_COLOR": "1"}
    for command, shown in shown_outputs(path.read_text()):
        words = shlex.split(command)[1:]
        run = subprocess.run([tool.path, *words], capture_output=True, text=True, cwd=root, env=environment)
        if run.stdout.strip() != shown.strip():
            yield (f"{relative}: `{command}` prints something else (exit {run.returncode}):\n"
                   f"{run.stdout}{run.stderr}")


def example_violations(path, root):
    """The C++ that a document shows is part of a program that a test builds and runs."""
    programs = "\n".join(p.read_text() for p in sorted((root / "tests/install").rglob("*.cc")))
    known = {line.strip() for line in programs.splitlines()}
    for match in FENCE.finditer(path.read_text()):
        for line in match.group(2).splitlines() if match.group(1) == "cpp" else ():
            if line.strip() and line.strip() not in known:
                yield f"{path.relative_to(root).as_posix()}: no program of tests/install has: {line}"


def check(root: Path, build: Path):
    binary = build / "kvarto" if build is not None else None
    tool = Tool(str(binary)) if binary is not None and binary.exists() else None
    found = []
    for path in documents(root):
        found.extend(name_violations(path, root, tool))
        found.extend(example_violations(path, root))
        if tool is not None:
            found.extend(output_violations(path, root, tool))
    return found
