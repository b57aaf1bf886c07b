"""Each dependency is named once; every source is listed; no flag that ties a build to one machine."""

import re
from pathlib import Path

FORBIDDEN_FLAG = re.compile(r"-march=native|-mtune=native|-ffast-math|-Ofast|include_directories\(|"
                            r"\bset\(CMAKE_CXX_FLAGS\b")


def packages(root):
    for line in (root / "packages.txt").read_text().splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            yield words[1]


def texts(root):
    skipped = ("/build", "/.git/", "/corpus/", "__pycache__")
    for path in sorted(root.rglob("*")):
        name = "/" + path.relative_to(root).as_posix()
        if path.is_file() and not any(part in name for part in skipped):
            yield path.relative_to(root).as_posix(), path


def package_violations(root):
    names = list(packages(root))
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield f"packages.txt: {name} is named more than once"
    # Other packages are called like the program in them, which scripts must name.
    library = re.compile(r"(?<![\w-])(" + "|".join(re.escape(n) for n in names if n.startswith("lib"))
                         + r")(?![\w-])")
    for relative, path in texts(root):
        if relative == "packages.txt" or path.suffix in (".o", ".a"):
            continue
        for match in library.finditer(path.read_text(errors="replace")):
            yield f"{relative}: names the package {match.group(1)}; packages.txt does"


def source_violations(root):
    for folder in ("src", "cli", "bench", "tests"):
        for path in sorted((root / folder).rglob("*.cc")):
            if "install" in path.parts or "planted" in path.parts:
                continue
            listed = False
            for parent in path.relative_to(root).parents:
                lists = root / parent / "CMakeLists.txt"
                name = path.stem.removeprefix("fuzz_")  # the fuzz targets' function adds it
                if lists.exists() and name in lists.read_text():
                    listed = True
                    break
            if not listed:
                yield f"{path.relative_to(root).as_posix()}: listed in no CMakeLists.txt"


def flag_violations(root):
    for relative, path in texts(root):
        if path.name != "CMakeLists.txt" and path.suffix != ".cmake" and path.name != "CMakePresets.json":
            continue
        for match in FORBIDDEN_FLAG.finditer(path.read_text()):
            # target_include_directories is the allowed form.
            before = path.read_text()[: match.start()]
            if match.group(0) == "include_directories(" and before.endswith("target_"):
                continue
            yield f"{relative}: {match.group(0)} is forbidden"


def check(root: Path, _build=None):
    return [*package_violations(root), *source_violations(root), *flag_violations(root)]
