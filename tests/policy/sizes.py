"""Files of at most 600 lines; functions of at most 60 lines and 5 parameters."""

import re
from pathlib import Path

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 5

# Path, or path:function, with the reason why it may be larger.
EXCEPTIONS = {}

CHECKED = (".h", ".cc", ".py", ".sh", ".cmake", ".txt", ".md")
FOLDERS = ("include", "src", "cli", "bench", "tests", "tools", "cmake", "docs")
NOT_A_FUNCTION = re.compile(r"^(namespace|struct|class|enum|union|extern|using|template|#|})\b|=\s*\{?$|^\S*\{\{")


def functions(text):
    """Yields (name, parameters, first line, lines) of the definitions at column 0.

    The house format puts a definition's first line and its closing brace at column 0, so no parser
    is needed.
    """
    lines = text.split("\n")
    start = None
    for i, line in enumerate(lines):
        if start is None:
            if line and not line[0].isspace() and not line.startswith(("//", "#", "}", "/*")):
                start = i
        if start is None:
            continue
        if line == "}":
            signature = "\n".join(lines[start : i + 1]).split("{", 1)[0]
            match = re.search(r"([~\w:]+)\s*\(", signature)
            is_type = re.match(r"(template\s*<[^{]*>\s*)?(namespace|struct|class|enum|union)\b", signature)
            if match and not is_type:
                yield match.group(1), parameters(signature[match.end() - 1 :]), start + 1, i - start + 1
            start = None
        elif line.endswith(";") and not line[0].isspace() or line.startswith("}"):
            start = None
        elif line.startswith("namespace") and line.endswith("{"):
            start = None
        elif line == "":
            # A declaration never spans an empty line; a body does.
            if "{" not in "\n".join(lines[start:i]):
                start = None


def parameters(text):
    """The number of parameters in `text`, which starts with the opening parenthesis."""
    depth, count, is_empty = 0, 0, True
    for character in text:
        if character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
            if depth == 0:
                break
        elif character == "," and depth == 1:
            count += 1
        if depth >= 1 and not character.isspace() and character != "(":
            is_empty = False
    return 0 if is_empty else count + 1


def check(root: Path, _build=None):
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root).as_posix()
            if path.suffix not in CHECKED or not path.is_file() or "/corpus/" in relative:
                continue
            text = path.read_text(errors="replace")
            lines = text.count("\n")
            if lines > MAX_FILE_LINES and relative not in EXCEPTIONS:
                found.append(f"{relative}: {lines} lines, at most {MAX_FILE_LINES}")
            if path.suffix not in (".cc", ".h") or folder in ("tests", "bench"):
                continue
            for name, count, first, length in functions(text):
                if f"{relative}:{name}" in EXCEPTIONS:
                    continue
                if length > MAX_FUNCTION_LINES:
                    found.append(f"{relative}:{first}: {name} has {length} lines, at most {MAX_FUNCTION_LINES}")
                if count > MAX_PARAMETERS:
                    found.append(f"{relative}:{first}: {name} has {count} parameters, at most {MAX_PARAMETERS}")
    return found
