# Two commands for a fresh Debian or Ubuntu machine with git and make:
#   make demo     installs what it needs, builds, shows real output
#   make test     installs what it needs, builds, runs every test
# Everything else is CMake; see CMakePresets.json.

.PHONY: build demo test sanitize bench bench-peers fuzz lint install clean

build:
	@tools/install_packages.sh build
	@test -f build/build.ninja || cmake --preset release
	@cmake --build build

demo: build
	@tools/demo.sh build/kvarto

test:
	@tools/install_packages.sh build test
	@tools/run_tests.sh

sanitize:
	@tools/install_packages.sh build test
	@tools/run_sanitizers.sh

bench:
	@tools/install_packages.sh build test bench
	@test -f build/bench/build.ninja || cmake --preset bench
	@cmake --build build/bench
	@tools/run_benchmarks.sh

# DIR holds llama.cpp and ik_llama.cpp, built (docs/peers.md); ARGS are options of bench/peers/run.py.
bench-peers: build
	@tools/install_packages.sh test
	@python3 bench/peers/run.py $(DIR) $(ARGS)

fuzz:
	@tools/install_packages.sh build fuzz
	@test -f build/fuzz/build.ninja || cmake --preset fuzz
	@cmake --build build/fuzz --target fuzzers
	@tools/run_fuzzers.sh build/fuzz $(FUZZ_SECONDS)

lint:
	@tools/install_packages.sh build test lint
	@tools/lint.sh

install: build
	@cmake --install build

clean:
	rm -rf build
