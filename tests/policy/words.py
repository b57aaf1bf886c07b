"""Words that say nothing stay out of the identifiers; places of one machine stay out of the tree."""

import re
from pathlib import Path

BANNED = {"manager", "helper", "helpers", "util", "utils", "common", "data", "info", "process",
          "handle", "handler", "misc", "stuff"}
BANNED_PREFIX = re.compile(r"^(do|my)_")

# Identifiers that stay, each with its reason.
ALLOWED = {
    "data",  # the member of the standard's containers and views
    "kCorruptData",  # the field's word for outside data that breaks its format
    "CodecInfo", "codec_info",  # the description of a codec, beside the enumeration Codec
}

COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
MACHINE_PLACE = re.compile(r"(?<![\w.*])/(?:home|root|Users|work|mnt|srv)/\w")
FOLDERS = ("include", "src", "cli", "bench", "tests", "tools", "cmake", "docs", "catalogue", ".ci")


def words_of(identifier):
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", identifier)
    return [word.lower() for word in spaced.split("_") if word]


def identifier_violations(root):
    for path in sorted((root / "include").rglob("*.h")):
        text = COMMENT_OR_STRING.sub(lambda m: "\n" * m.group(0).count("\n"), path.read_text())
        text = re.sub(r"#\s*include[^\n]*", "", text)
        for identifier in sorted(set(re.findall(r"\b[A-Za-z_]\w*\b", text))):
            if identifier in ALLOWED:
                continue
            bad = [word for word in words_of(identifier) if word in BANNED]
            if bad or BANNED_PREFIX.match(identifier):
                relative = path.relative_to(root).as_posix()
                yield f"{relative}: {identifier} has a banned word (docs/architecture.md)"


def place_violations(root):
    files = [p for folder in FOLDERS for p in (root / folder).rglob("*")]
    files += [p for p in root.iterdir()]
    for path in sorted(files):
        relative = path.relative_to(root).as_posix()
        if not path.is_file() or relative == ".git" or "__pycache__" in relative or "/corpus/" in relative:
            continue
        text = path.read_text(errors="replace")
        for match in MACHINE_PLACE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{relative}:{line}: names a place of one machine"


def check(root: Path, _build=None):
    return [*identifier_violations(root), *place_violations(root)]
