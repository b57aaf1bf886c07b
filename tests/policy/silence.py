"""The library never prints, never exits, never aborts, and reads one environment variable."""

import re
import subprocess
from pathlib import Path

FORBIDDEN_CALL = re.compile(
    r"(?<![\w.>])(?:std::)?(?:abort|exit|_exit|_Exit|quick_exit|terminate|printf|fprintf|puts|fputs|putchar|"
    r"perror|getenv|secure_getenv|system)\s*\(|std::(?:cout|cerr|clog)\b|\b(?:stdout|stderr)\b|"
    r"#\s*include\s*<iostream>|\bfmt::print\b")
FORBIDDEN_SYMBOL = re.compile(
    r"^(abort|exit|_exit|_Exit|quick_exit|printf|fprintf|puts|fputs|putchar|perror|stdout|stderr|"
    r"getenv|secure_getenv|system|__printf_chk|__fprintf_chk|std::(cout|cerr|clog))(@|$)")

# Files of src/ that may, each with its reason; names are those of the calls and symbols.
ALLOWED = {
    "src/base/check.cc": {"abort"},  # a programming error inside the library
    "src/kernels/dispatch.cc": {"getenv"},  # KVARTO_ISA, read once
}

COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def source_violations(root):
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".h", ".cc"):
            continue
        relative = path.relative_to(root).as_posix()
        text = COMMENT_OR_STRING.sub(lambda m: "\n" * m.group(0).count("\n"), path.read_text())
        for match in FORBIDDEN_CALL.finditer(text):
            word = re.sub(r"std::|\W", "", match.group(0))
            if word not in ALLOWED.get(relative, ()):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{relative}:{line}: the library may not use {match.group(0).strip()}"


def object_violations(path, relative):
    listing = subprocess.run(["nm", "-C", "--undefined-only", str(path)], check=True,
                             capture_output=True, text=True).stdout
    for line in listing.splitlines():
        symbol = line.split(" U ", 1)[-1].strip()
        match = FORBIDDEN_SYMBOL.match(symbol)
        if match and match.group(1) not in ALLOWED.get(relative, ()):
            yield f"{relative}: refers to {symbol}"


def is_release(build):
    cache = build / "CMakeCache.txt"
    text = cache.read_text() if cache.exists() else ""
    # Assertions of a debug build abort, and sanitizers print.
    return "CMAKE_BUILD_TYPE:STRING=Release" in text and "KVARTO_SANITIZE:STRING=\n" in text


def check(root: Path, build: Path):
    found = list(source_violations(root))
    if build is not None and is_release(build):
        objects = build / "CMakeFiles" / "kvarto.dir"
        for path in sorted(objects.rglob("*.o")):
            relative = path.relative_to(objects).as_posix().removesuffix(".o")
            found.extend(object_violations(path, relative))
    return found
