# The short way to everything; CMakeLists.txt does the work.
#
#   make                         build the program
#   make run PROMPT="..."        install what is missing, build, and tell a tale; without PROMPT, on a random subject
#   make test                    install what is missing, build, check the rules, run every test
#   make test SAN=address        the same with AddressSanitizer and UBSan; SAN=thread: tests with several
#                                threads, with ThreadSanitizer
#   make CC=clang                with another compiler
#   make test-arm                build for 64-bit ARM and test the kernels under emulation
#   make test-gpu                kernels, golden models and the server on this machine's NVIDIA GPU
#   make test-real               with published weights, which are fetched into a cache
#   make install PREFIX=/usr/local DESTDIR=
#   make format, make clean
#
# WERROR=ON or OFF says whether warnings are errors (ON in a git checkout), LTO=ON optimises over the whole program,
# SAN_KERNELS=OFF leaves the kernels unwatched by the sanitizer, which makes ThreadSanitizer several times faster.
# Each compiler and sanitizer has a build folder of its own: build, build-clang, build-address, build-clang-address.
SAN      :=
WERROR   :=
LTO      :=
SAN_KERNELS :=
PREFIX   := /usr/local
PROMPT   :=
compiler := $(if $(filter default,$(origin CC)),,$(notdir $(lastword $(CC))))
BUILD    := build$(addprefix -,$(compiler))$(addprefix -,$(SAN))
export PROMPT

.PHONY: all everything run test test-arm test-gpu test-real setup install format clean
all: $(BUILD)/configured
	@cmake --build $(BUILD) --target spry --parallel $$(nproc)

everything: $(BUILD)/configured
	@cmake --build $(BUILD) --parallel $$(nproc)

$(BUILD)/configured:
	@cmake --log-level=NOTICE -S . -B $(BUILD) $$(command -v ninja >/dev/null && echo -G Ninja) \
	       $(if $(compiler),-DCMAKE_C_COMPILER="$(CC)") -DSAN=$(SAN) $(addprefix -DSPRY_WERROR=,$(WERROR)) \
	       $(addprefix -DSPRY_LTO=,$(LTO)) $(addprefix -DSPRY_SAN_KERNELS=,$(SAN_KERNELS))
	@touch $@

run: setup
	@$(MAKE) --no-print-directory all
	@scripts/tale $(BUILD)/spry

# The browser is large; where it cannot be had, the page's test says that it is skipped. So do the tests of speech.
test: setup
	@scripts/setup web || true
	@scripts/setup voice || true
	@scripts/setup ranks || true
	@$(MAKE) --no-print-directory everything
	@scripts/test $(BUILD)

test-arm:
	@scripts/test-arm

test-gpu: everything
	@scripts/test-gpu $(BUILD)

test-real: all
	@scripts/test-real $(BUILD)

setup:
	@scripts/setup

install: all
	@cmake --build $(BUILD) --target libspry libspry_shared --parallel $$(nproc)
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(PREFIX)"

format:
	clang-format -i $$(find include src apps tests examples -name '*.[ch]')

clean:
	rm -rf build build-*
