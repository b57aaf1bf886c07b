"""Every check of this folder fails on a planted example, and passes on its mended form.

usage: self_test.py C++_COMPILER
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

import build_rules
import documents
import isa_symbols
import layers
import silence
import sizes
import words

COMPILER = "c++"


class Planted(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)

    def plant(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def assert_finds(self, module, part, build=None):
        found = module.check(self.root, build)
        self.assertTrue(any(part in violation for violation in found), f"{part} not in {found}")

    def assert_clean(self, module, build=None):
        self.assertEqual(module.check(self.root, build), [])


class Layers(Planted):
    def test_a_part_may_not_include_its_neighbour(self):
        self.plant("src/cache/pool.cc", '#include "formats/gguf.h"\n')
        self.assert_finds(layers, "part cache may not include formats/gguf.h")

    def test_a_part_may_not_include_the_public_header_of_a_higher_part(self):
        self.plant("src/spec/size.cc", '#include "kvarto/plan.h"\n')
        self.assert_finds(layers, "part spec may not include kvarto/plan.h")

    def test_spec_and_kernels_know_nothing_of_each_other(self):
        self.plant("src/kernels/dot.cc", '#include "spec/keys.h"\n')
        self.assert_finds(layers, "part kernels may not include spec/keys.h")

    def test_a_face_sees_public_headers_alone(self):
        self.plant("cli/main.cc", '#include "spec/keys.h"\n')
        self.assert_finds(layers, "cli/main.cc: a face sees include/kvarto alone")

    def test_the_parser_of_options_is_included_once(self):
        self.plant("cli/main.cc", "#include <CLI/CLI.hpp>\n")
        self.assert_finds(layers, "includes <CLI/CLI.hpp>")

    def test_a_public_header_includes_no_library(self):
        self.plant("include/kvarto/stream.h", "#include <fmt/format.h>\n")
        self.assert_finds(layers, "may not include fmt/format.h")

    def test_a_public_header_belongs_to_a_part(self):
        self.plant("include/kvarto/unheard_of.h", "\n")
        self.assert_finds(layers, "no part in HEADER_PART")

    def test_an_isa_file_includes_no_standard_container(self):
        self.plant("src/kernels/avx2/dot.cc", "#include <vector>\n")
        self.assert_finds(layers, "an ISA file may not include <vector>")

    def test_downward_includes_pass(self):
        self.plant("src/plan/plan.cc", '#include "kvarto/plan.h"\n#include "base/checked.h"\n#include <vector>\n')
        self.plant("src/kernels/avx2/dot.cc", "#include <cstdint>\n#include <immintrin.h>\n")
        self.assert_clean(layers)


class IsaSymbols(Planted):
    def compile(self, text):
        source = self.plant("dot.cc", text)
        target = self.root / "build/CMakeFiles/kvarto.dir/src/kernels/avx2/dot.cc.o"
        target.parent.mkdir(parents=True)
        subprocess.run([COMPILER, "-std=c++20", "-O0", "-c", str(source), "-o", str(target)], check=True)
        return self.root / "build"

    def test_a_template_of_the_standard_library_is_found(self):
        build = self.compile("#include <algorithm>\nnamespace kvarto::avx2 {\n"
                             "int largest(int a, int b) { return std::max(a, b); }\n}\n")
        self.assert_finds(isa_symbols, "std::max", build)

    def test_a_function_of_another_namespace_is_found(self):
        build = self.compile("namespace kvarto { int dot() { return 1; } }\n")
        self.assert_finds(isa_symbols, "kvarto::dot()", build)

    def test_symbols_of_the_namespace_pass(self):
        build = self.compile("namespace kvarto::avx2 {\nstatic int one() { return 1; }\n"
                             "extern const int kTwo;\nconst int kTwo = 2;\n"
                             "template <typename T> T three(T) { return 3; }\n"
                             "int dot() { return one() + kTwo + three<int>(0); }\n}\n")
        self.assert_clean(isa_symbols, build)


class Silence(Planted):
    def compile(self, text, relative="src/plan/plan.cc"):
        source = self.plant("source.cc", text)
        target = self.root / "build/CMakeFiles/kvarto.dir" / (relative + ".o")
        target.parent.mkdir(parents=True)
        self.plant("build/CMakeCache.txt", "CMAKE_BUILD_TYPE:STRING=Release\nKVARTO_SANITIZE:STRING=\n")
        subprocess.run([COMPILER, "-std=c++20", "-c", str(source), "-o", str(target)], check=True)
        return self.root / "build"

    def test_a_print_in_a_source_is_found(self):
        self.plant("src/plan/plan.cc", "void f() { std::printf(\"x\"); }\n")
        self.assert_finds(silence, "printf")

    def test_words_in_comments_and_strings_pass(self):
        self.plant("src/plan/plan.cc", '// exit(1)\nconst char* text = "abort()";\n')
        self.assert_clean(silence)

    def test_a_printing_symbol_of_an_object_is_found(self):
        build = self.compile("#include <cstdio>\nvoid f() { std::fputs(\"x\", stderr); }\n")
        self.assert_finds(silence, "refers to", build)

    def test_an_environment_read_is_found(self):
        build = self.compile("#include <cstdlib>\nbool f() { return std::getenv(\"X\") != nullptr; }\n")
        self.assert_finds(silence, "getenv", build)

    def test_the_one_allowed_environment_read_passes(self):
        build = self.compile("#include <cstdlib>\nbool f() { return std::getenv(\"X\") != nullptr; }\n",
                             "src/kernels/dispatch.cc")
        self.assert_clean(silence, build)


class Sizes(Planted):
    def test_a_long_file_is_found(self):
        self.plant("src/plan/plan.cc", "// x\n" * 601)
        self.assert_finds(sizes, "601 lines")

    def test_a_long_function_is_found(self):
        self.plant("src/plan/plan.cc", "int f(int a) {\n" + "  ++a;\n\n" * 30 + "  return a;\n}\n")
        self.assert_finds(sizes, "f has 63 lines")

    def test_six_parameters_are_found(self):
        self.plant("src/plan/plan.cc",
                   "int f(int a, std::map<int, int> b,\n      int c, int d, int e, int g) {\n  return a;\n}\n")
        self.assert_finds(sizes, "f has 6 parameters")

    def test_a_namespace_of_short_functions_passes(self):
        short = "int f(int a, std::map<int, int> b) {\n  return a;\n}\n\n"
        self.plant("src/plan/plan.cc", "namespace kvarto {\n\n" + short * 40 + "}  // namespace kvarto\n")
        self.assert_clean(sizes)


class Words(Planted):
    def test_a_banned_word_in_an_identifier_is_found(self):
        self.plant("include/kvarto/plan.h", "struct BlockManager {};\n")
        self.assert_finds(words, "BlockManager")

    def test_a_place_of_one_machine_is_found(self):
        self.plant("tools/run.sh", "cd /" + "home/someone/kvarto\n")
        self.assert_finds(words, "names a place of one machine")

    def test_the_same_letters_inside_a_word_pass(self):
        self.plant("include/kvarto/plan.h", "// the process handles data\nint reprocessed;\n")
        self.assert_clean(words)


class BuildRules(Planted):
    def test_a_package_named_twice_is_found(self):
        self.plant("packages.txt", "build libx-dev one\ntest libx-dev two\n")
        self.assert_finds(build_rules, "libx-dev is named more than once")

    def test_a_package_named_in_a_script_is_found(self):
        self.plant("packages.txt", "build libx-dev one\n")
        self.plant("tools/setup.sh", "apt-get install libx-dev\n")
        self.assert_finds(build_rules, "tools/setup.sh: names the package libx-dev")

    def test_a_source_that_no_list_names_is_found(self):
        self.plant("packages.txt", "")
        self.plant("src/plan/CMakeLists.txt", "target_sources(kvarto PRIVATE plan.cc)\n")
        self.plant("src/plan/plan.cc", "")
        self.plant("src/plan/forgotten.cc", "")
        self.assert_finds(build_rules, "src/plan/forgotten.cc: listed in no")

    def test_a_flag_for_one_machine_is_found(self):
        self.plant("packages.txt", "")
        self.plant("src/CMakeLists.txt", "target_compile_options(kvarto PRIVATE -march=native)\n")
        self.assert_finds(build_rules, "-march=native is forbidden")


class Documents(Planted):
    def setUp(self):
        super().setUp()
        self.plant("Makefile", "test:\n\ttrue\n")
        self.plant("docs/other.md", "\n")
        tool = self.plant("build/kvarto", "#!/bin/sh\n"
                          'case "$*" in\n"plan --help") echo "  --json";;\n"plan x") echo "4 GiB";;\n*) exit 2;;\nesac\n')
        tool.chmod(0o755)

    def find(self, text):
        self.plant("README.md", text)
        return documents.check(self.root, self.root / "build")

    def test_a_path_that_does_not_exist_is_found(self):
        self.assertIn("does not exist", "".join(self.find("see `docs/missing.md`\n")))

    def test_a_make_target_that_does_not_exist_is_found(self):
        self.assertIn("no such make target", "".join(self.find("run `make tests`\n")))

    def test_a_command_that_does_not_exist_is_found(self):
        self.assertIn("no command fly", "".join(self.find("run `kvarto fly`\n")))

    def test_an_option_that_does_not_exist_is_found(self):
        self.assertIn("no option --wings", "".join(self.find("```\nkvarto plan X --wings\n```\n")))

    def test_an_output_that_differs_is_found(self):
        self.assertIn("prints something else",
                      "".join(self.find("```console\n$ kvarto plan x\n5 GiB\n```\n")))

    def test_an_example_that_no_test_builds_is_found(self):
        self.assertIn("no program of tests/install has",
                      "".join(self.find("```cpp\nkvarto::fly();\n```\n")))

    def test_a_true_document_passes(self):
        self.assertEqual(self.find("`docs/other.md`, `make test`, `kvarto plan X --json`\n"
                                   "```console\n$ kvarto plan x\n4 GiB\n```\n"), [])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        COMPILER = sys.argv.pop(1)
    unittest.main()
