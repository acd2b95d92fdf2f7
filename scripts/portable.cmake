# CMake toolchain of scripts/portable: this machine's compiler, and headers and libraries of an older Debian, whose C library
# every later one can replace. PORTABLE_ARCH and PORTABLE_FOLDER come from the environment.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $ENV{PORTABLE_ARCH})
set(CMAKE_C_COMPILER $ENV{PORTABLE_ARCH}-linux-gnu-gcc)
set(CMAKE_SYSROOT $ENV{PORTABLE_FOLDER}/sysroot)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/$ENV{PORTABLE_ARCH}-linux-gnu/pkgconfig)
