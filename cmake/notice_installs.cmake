# Optional libraries and tools may be installed after this build folder was made. Installing one adds an entry to one of these
# folders, which changes the folder's time, and then the next build runs CMake again, which looks for everything that it has
# not found. A folder that does not exist yet is represented by the nearest one above it that does.
set(packages "$ENV{PKG_CONFIG_LIBDIR}")
if(NOT packages)
  execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --variable pc_path pkg-config OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
string(REPLACE ":" ";" packages "$ENV{PKG_CONFIG_PATH}:${packages}")
set(watched ${packages} /usr/bin /usr/include /usr/share/javascript/highlight.js /usr/share/javascript/katex /usr/local/cuda/bin)
foreach(folder ${watched})
  while(NOT EXISTS ${folder})
    get_filename_component(folder ${folder} DIRECTORY)
  endwhile()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder})
endforeach()
