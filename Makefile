# The short way to everything; CMakeLists.txt does the work.
#
#   make                         build the program
#   make run PROMPT="..."        install what is missing, build, and tell a tale; without PROMPT, on a random subject. A new
#                                build folder has the CPU kernels of this machine only; everything else makes all
#   make test                    install what is missing, build, check the rules, run the tests (10 minutes on two cores)
#   make test-all                the long tests too, and GPU kernels are compiled (before a release, and after changes of
#                                kernels, KV or formats)
#   make test-fresh              make run, then make test, in a new Debian root without anything of this machine
#   make test SAN=address        with AddressSanitizer and UBSan; SAN=thread: tests with several threads, with
#                                ThreadSanitizer
#   make CC=clang                with another compiler
#   make CUDA=ON                 with GPU kernels, also where no NVIDIA GPU is found; CUDA=OFF: without, also where one is
#   make test-macos              compile and link for macOS (arm64 and x86-64) without a Mac; nothing is run
#   make PLATFORM=posix          with the platform code that systems other than Linux use
#   make test-arm                build for 64-bit ARM and test the kernels under emulation
#   make test-gpu                kernels, golden models and the server on this machine's NVIDIA GPU
#   make test-real               with published weights, which are fetched into a cache
#   make fuzz TARGET=json SECONDS=60   a fuzz target of tests/fuzz, or all
#   make test-torture            fail every call of the system once: allocations, files, threads, sockets (an hour)
#   make mutations COUNT=1000000   inputs with random changes for commands and the server: none ends by a signal
#   make soak MINUTES=10         a server under random clients: nothing leaks, answers stay right
#   make sbom                    the libraries of the program and their packages, as CycloneDX
#   make deb                     Debian packages, in build-packages/deb; with CUDA=ON also one of GPU kernels
#   make test-packages           build all packages, and install, use and remove them in clean roots (as root; takes minutes)
#   make tarball                 a tarball for every Linux with glibc 2.31 or later, and its install.sh, in build-packages/tarball
#   make wheel, make npm         the Python binding with the library inside; packages for npm; of the same program
#   make release KEY=FILE        sources, that list and their sums, signed with an SSH key, in build/release; PACKAGES=FOLDER:
#                                tarballs of that folder and install.sh, too
#   make test-agents             with coding agents from npm, which are fetched into a cache (NEWEST=1: again); writes the
#                                table in docs/AGENTS.md
#   make install PREFIX=/usr/local DESTDIR=
#   make format, make clean
#
# WERROR=ON or OFF says whether warnings are errors (ON in a git checkout), LTO=ON optimises over the whole program,
# SAN_KERNELS=OFF leaves the kernels unwatched by the sanitizer, which makes ThreadSanitizer several times faster.
# Each compiler and sanitizer has a build folder of its own: build, build-clang, build-address, build-clang-address.
SAN      :=
WERROR   :=
LTO      :=
PLATFORM :=
CUDA     :=
KERNELS  := all
SAN_KERNELS :=
PREFIX   := /usr/local
PROMPT   :=
TARGET   :=
KEY      :=
SECONDS  := 60
MINUTES  := 5
COUNT    := 1000000
compiler := $(if $(filter default,$(origin CC)),,$(notdir $(lastword $(CC))))
BUILD    := build$(addprefix -,$(compiler))$(addprefix -,$(SAN))$(addprefix -,$(PLATFORM))
CORES    := $(shell getconf _NPROCESSORS_ONLN)
flags    := $(if $(compiler),-DCMAKE_C_COMPILER="$(CC)") -DSAN=$(SAN) $(addprefix -DSPRY_WERROR=,$(WERROR)) \
            $(addprefix -DSPRY_LTO=,$(LTO)) $(addprefix -DSPRY_PLATFORM=,$(PLATFORM)) $(addprefix -DSPRY_CUDA=,$(CUDA)) -DSPRY_KERNELS=$(KERNELS) \
            $(addprefix -DSPRY_SAN_KERNELS=,$(SAN_KERNELS))
export PROMPT

.PHONY: all everything objects configure run test test-all test-fresh test-arm test-macos test-gpu test-real test-torture test-valgrind mutations soak sbom release deb tarball wheel npm test-packages fuzz test-agents setup install format clean
all: configure
	@cmake --build $(BUILD) --target spry --parallel $(CORES)

everything: configure
	@cmake --build $(BUILD) --parallel $(CORES)

# CMake runs for a new build folder, for other flags, and for a folder that came with a copy of another checkout. What is
# installed later it notices by itself (CMAKE_CONFIGURE_DEPENDS).
configure:
	@mkdir -p $(BUILD)
	@printf '%s\n' '$(CURDIR) $(flags)' | cmp -s - $(BUILD)/flags || { \
	    grep -qsxF 'CMAKE_HOME_DIRECTORY:INTERNAL=$(CURDIR)' $(BUILD)/CMakeCache.txt || rm -rf $(BUILD)/CMakeCache.txt $(BUILD)/CMakeFiles; \
	    cmake --log-level=NOTICE -S . -B $(BUILD) $$(command -v ninja >/dev/null && ! test -f $(BUILD)/Makefile && echo -G Ninja) $(flags) && \
	    printf '%s\n' '$(CURDIR) $(flags)' >$(BUILD)/flags; }

# A new build folder gets the kernels of this processor; one that has all keeps them.
own_kernels = KERNELS=$(shell grep -Lsx SPRY_KERNELS:STRING=native $(BUILD)/CMakeCache.txt | grep -q . && echo all || echo native)

# What the features' modules need is installed while everything else compiles. The build folder is configured again after it.
run:
	@scripts/setup build
	@$(MAKE) --no-print-directory configure $(own_kernels)
	@lacking=$$(scripts/setup missing); [ -z "$$lacking" ] || { scripts/setup & \
	    $(MAKE) --no-print-directory objects $(own_kernels) || failed=yes; wait; \
	    [ "$$lacking" = "$$(scripts/setup missing)" ] || rm -f $(BUILD)/flags; [ -z "$$failed" ]; }
	@$(MAKE) --no-print-directory all $(own_kernels)
	@scripts/tale $(BUILD)/spry

objects: configure
	@cmake --build $(BUILD) --target spry_objects --target spry_app --parallel $(CORES)

test: setup
	@scripts/setup test
	@$(MAKE) --no-print-directory everything
	@scripts/test $(BUILD)

test-all: setup
	@scripts/setup test
	@$(MAKE) --no-print-directory everything CUDA=ON
	@scripts/test $(BUILD) all

test-fresh:
	@scripts/test-fresh

test-arm:
	@scripts/test-arm

fuzz:
	@scripts/setup fuzz
	@scripts/fuzz "$(TARGET)" $(SECONDS)

test-torture: everything
	@SPRY_TORTURE=1 ctest --test-dir $(BUILD) --output-on-failure --timeout 7200 -R '^server_torture$$'

mutations: all
	@SPRY=$(BUILD)/spry MUTATIONS=$(COUNT) PYTHONDONTWRITEBYTECODE=1 python3 tests/server/server_mutations.py

sbom: all
	@scripts/sbom $(BUILD)

release: all
	@scripts/release $(BUILD) "$(KEY)" $(BUILD)/release $(PACKAGES)

deb tarball wheel npm:
	@CUDA=$(CUDA) scripts/package $@

test-packages:
	@CUDA=$(CUDA) scripts/test-packages

soak: all
	@SPRY=$(BUILD)/spry PYTHONDONTWRITEBYTECODE=1 python3 tests/server/soak.py $(MINUTES)

test-macos:
	@scripts/test-macos

test-gpu: everything
	@scripts/test-gpu $(BUILD)

test-real: all
	@scripts/test-real $(BUILD)

test-agents: configure
	@cmake --build $(BUILD) --target spry_script --parallel $$(nproc)
	@SPRY=$(BUILD)/tests/spry_script python3 tests/agents/agents.py --write $(if $(NEWEST),--newest)

setup:
	@scripts/setup

install: all
	@cmake --build $(BUILD) --target libspry libspry_shared --parallel $(CORES)
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(PREFIX)"

format:
	clang-format -i $$(find include src apps tests examples -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh')

clean:
	rm -rf build build-*
