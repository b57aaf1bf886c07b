"""Who may include whom: the table of docs/architecture.md, as the includes of every file."""

import re
from pathlib import Path

# A part may include the parts named here, itself, and the public headers that belong to them.
ALLOWED = {
    "base": set(),
    "spec": {"base"},
    "kernels": {"base"},
    "plan": {"base", "spec", "kernels"},
    "formats": {"base", "spec", "kernels"},
    "cache": {"base", "spec", "kernels"},
    "attention": {"base", "spec", "kernels"},
    "text": {"base", "spec", "kernels"},
}
COMPOSERS = ("profile", "doctor", "replay", "runtime")
for composer in COMPOSERS:
    ALLOWED[composer] = {"base", "spec", "kernels", "plan", "formats", "cache", "attention", "text"}

# The part that a public header belongs to. Plain data through which neighbours meet belongs to
# the lowest part that knows it.
HEADER_PART = {
    "result.h": "base",
    "codec.h": "base",
    "codec_id.h": "base",
    "hardware_spec.h": "base",
    "stream.h": "spec",
    "layer_types.h": "spec",
    "model_spec.h": "spec",
    "tracks.h": "spec",
    "layout.h": "spec",
    "cache_view.h": "spec",
    "plan.h": "plan",
    "model_file.h": "formats",
    "tensor_file.h": "formats",
    "catalogue.h": "formats",
    "block_pool.h": "cache",
    "kv_cache.h": "cache",
    "attention.h": "attention",
    "selection.h": "attention",
    "latent_attention.h": "attention",
    "measure.h": "profile",
    "measure_sparse.h": "profile",
    "observe.h": "spec",
    "profile.h": "profile",
    "layout_convert.h": "cache",
    "measure_append.h": "profile",
    "shared_kv_cache.h": "cache",
    "runtime.h": "runtime",
    "vocabulary.h": "spec",
    "vocabulary_file.h": "formats",
    "tokenizer.h": "text",
    "sampler.h": "text",
}

# Single includes that the table forbids and that stay, each with its reason.
EXCEPTIONS = {
    ("src/base/tensor_type.cc", "kvarto/tensor_file.h"): "the table of tensor types is plain data",
}

# Third-party headers by their first path component, and who may include them.
THIRD_PARTY = {
    "tl": None,  # everyone
    "fmt": {"src", "cli", "bench", "tests"},
    "nlohmann": {"src/formats", "src/profile", "src/replay", "cli", "bench", "tests"},
    "CLI": {"cli/options.cc"},
    "hwloc.h": {"src/base"},
    "oneapi": {"src/runtime"},
    "pcre2.h": {"src/text"},
    "utf8proc.h": {"src/text"},
    "benchmark": {"bench"},
    "gtest": {"tests"},
    "gmock": {"tests"},
    "rapidcheck": {"tests"},
    "rapidcheck.h": {"tests"},
}

ISA_FILE = re.compile(r"(?:^|[/_])(avx2|avx512\w*|neon)(?:[/_.]|$)")
ISA_SYSTEM_HEADERS = {"cstdint", "cstddef", "immintrin.h", "arm_neon.h", "x86intrin.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(<[^>]+>|"[^"]+")', re.MULTILINE)


def includes(path):
    for match in INCLUDE.finditer(path.read_text(errors="replace")):
        yield match.group(1)[0] == "<", match.group(1)[1:-1]


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cc") and p.is_file())


def may_use(part, used):
    return used == part or used in ALLOWED[part]


def check_third_party(relative, name):
    first = name.split("/")[0]
    if first not in THIRD_PARTY or THIRD_PARTY[first] is None:
        return None
    if any(relative == place or relative.startswith(place + "/") for place in THIRD_PARTY[first]):
        return None
    return f"{relative}: includes <{name}>, which only {sorted(THIRD_PARTY[first])} may"


def is_standard(name):
    return "/" not in name and "." not in name


def check_public(root):
    for path in sources(root / "include"):
        relative = path.relative_to(root).as_posix()
        if path.name not in HEADER_PART:
            yield f"{relative}: no part in HEADER_PART of tests/policy/layers.py"
        for is_angled, name in includes(path):
            if is_angled and (is_standard(name) or name == "tl/expected.hpp"):
                continue
            if not is_angled and name.startswith("kvarto/"):
                used, own = HEADER_PART.get(name[7:]), HEADER_PART.get(path.name)
                if used and own and not may_use(own, used):
                    yield f"{relative}: part {own} may not include {name} of part {used}"
                continue
            yield f"{relative}: a public header may not include {name}"


def check_isa_file(root, path):
    relative = path.relative_to(root).as_posix()
    for is_angled, name in includes(path):
        if is_angled and name not in ISA_SYSTEM_HEADERS:
            yield f"{relative}: an ISA file may not include <{name}>"
        if not is_angled and not name.startswith(("kernels/", "kvarto/", "base/")) and "/" in name:
            yield f"{relative}: an ISA file may not include {name}"


def check_source(root):
    for path in sources(root / "src"):
        relative = path.relative_to(root).as_posix()
        part = path.relative_to(root / "src").parts[0]
        if part not in ALLOWED:
            yield f"{relative}: no rule for the part {part} in tests/policy/layers.py"
            continue
        if part == "kernels" and ISA_FILE.search(relative):
            yield from check_isa_file(root, path)
        for is_angled, name in includes(path):
            if is_angled:
                found = check_third_party(relative, name)
                if found:
                    yield found
                continue
            if (relative, name) in EXCEPTIONS:
                continue
            if name.startswith("kvarto/"):
                used = HEADER_PART.get(name[7:])
                if used is None:
                    continue  # reported by check_public
            else:
                used = name.split("/")[0] if "/" in name else part
            if used in ALLOWED and not may_use(part, used):
                yield f"{relative}: part {part} may not include {name} of part {used}"
            elif used not in ALLOWED:
                yield f"{relative}: {name} is in no part"


def check_faces(root):
    for face in ("cli", "bench"):
        own = {p.name for p in sources(root / face)}
        for path in sources(root / face):
            relative = path.relative_to(root).as_posix()
            for is_angled, name in includes(path):
                if is_angled:
                    found = check_third_party(relative, name)
                    if found:
                        yield found
                elif not name.startswith("kvarto/") and name not in own:
                    yield f"{relative}: a face sees include/kvarto alone, not {name}"


def check(root: Path, _build=None):
    return [*check_public(root), *check_source(root), *check_faces(root)]
