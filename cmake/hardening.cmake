# What makes memory errors harder to use. Compiled code: canaries on stacks, pages of the stack touched in order, copies whose
# size the C library checks, and marks where indirect jumps may land. Linked files: tables of addresses that cannot be written
# after start, position-independent programs, stacks that cannot be run. tests/cli/cli_hardening.py looks for each in the program.
include(CheckCCompilerFlag)
set(flags -fstack-protector-strong)
if(NOT APPLE)
  list(APPEND flags -fstack-clash-protection)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND flags -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND flags -mbranch-protection=standard)
endif()
foreach(flag ${flags})
  string(MAKE_C_IDENTIFIER "has${flag}" has)
  check_c_compiler_flag(${flag} ${has})
  if(${has})
    add_compile_options(${flag})
  endif()
endforeach()
if(NOT SAN) # sanitizers have checks of their own, which those of the C library would hide
  add_compile_options($<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE>
                      $<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-D_FORTIFY_SOURCE=3>)
endif()
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

add_library(hardening INTERFACE)
if(NOT APPLE)
  target_link_options(hardening INTERFACE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
endif()
if(has_fcf_protection_full AND NOT APPLE)
  # Files that start programs on some systems lack the mark, but need nothing for it.
  target_link_options(hardening INTERFACE LINKER:-z,shstk)
endif()
