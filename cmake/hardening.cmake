# What makes memory errors harder to use: tables of addresses that cannot be written after start, and stacks that cannot be
# run. Compilers make position-independent programs by themselves. tests/cli/cli_hardening.py looks for each in the program.
add_library(hardening INTERFACE)
if(NOT APPLE)
  target_link_options(hardening INTERFACE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
endif()
