"""An object compiled for an instruction set defines symbols in that set's namespace alone.

A weak symbol outside it (an inline function of a header, a template of the standard library) could
be chosen by the linker for the whole program, which then dies on an older processor.
"""

import re
import subprocess
from pathlib import Path

from layers import ISA_FILE

# `nm` types of symbols that other objects can see.
VISIBLE = set("TWVBDRGSCiu")
COMPILER_MADE = re.compile(r"^(vtable for|typeinfo for|typeinfo name for|guard variable for) ")


def visible_symbols(path):
    listing = subprocess.run(["nm", "-C", "--defined-only", str(path)], check=True,
                             capture_output=True, text=True).stdout
    for line in listing.splitlines():
        match = re.match(r"^[0-9a-f]* ([A-Za-z]) (.*)$", line)
        if match and match.group(1) in VISIBLE:
            yield match.group(2)


def object_violations(path, isa):
    inside = re.compile(rf"^(?:[\w:<>*& ]+ )?kvarto::(?:\w+::)*{isa}::")
    for symbol in visible_symbols(path):
        if not inside.search(COMPILER_MADE.sub("", symbol)):
            yield f"{path.name}: {symbol} lies outside namespace {isa}"


def check(_root: Path, build: Path):
    found = []
    for path in sorted(build.rglob("*.o")):
        parts = path.as_posix()
        match = ISA_FILE.search(parts[parts.rfind("/kernels/") :]) if "/kernels/" in parts else None
        if match and "kvarto.dir" in parts:
            found.extend(object_violations(path, match.group(1)))
    return found
