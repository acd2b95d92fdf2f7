# Kernels for NVIDIA GPUs, compiled by nvcc: each file of src/device/cuda/kernels becomes an image for several GPUs, and all
# images are linked into the module spry_cuda, which the library opens when a GPU is used. Nothing of NVIDIA's is linked.
# Compiling takes minutes, so by default it happens only where a GPU is found, and for that GPU alone.
set(SPRY_CUDA "AUTO" CACHE STRING "Compile GPU kernels: AUTO (where an NVIDIA GPU is found), ON or OFF")
set(SPRY_CUDA_ARCHITECTURES "" CACHE STRING "GPUs to compile for, such as 90; empty: this machine's (AUTO) or all known ones (ON)")
find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
set(CUDA_WANTED ${SPRY_CUDA})
set(CUDA_ARCHITECTURES ${SPRY_CUDA_ARCHITECTURES})
if(SPRY_CUDA STREQUAL "AUTO")
  set(CUDA_WANTED OFF)
  if((EXISTS /dev/nvidiactl OR EXISTS /proc/driver/nvidia/version OR EXISTS /dev/dxg) AND NOT CMAKE_CROSSCOMPILING)
    set(CUDA_WANTED ON)
    if(NOT CUDA_ARCHITECTURES)
      find_program(NVIDIA_SMI nvidia-smi HINTS /usr/lib/wsl/lib)
      set(found "")
      if(NVIDIA_SMI)
        execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE found ERROR_QUIET)
      endif()
      string(REGEX MATCHALL "[0-9]+\\.[0-9]" found "${found}")
      list(REMOVE_DUPLICATES found)
      string(REPLACE "." "" CUDA_ARCHITECTURES "${found}")
      list(FILTER CUDA_ARCHITECTURES EXCLUDE REGEX "^[1-7].$") # kernels need 8.0; such a GPU is refused in a sentence
    endif()
  endif()
endif()
if(NOT CUDA_ARCHITECTURES)
  set(CUDA_ARCHITECTURES 80 86 89 90 100)
endif()
set(CUDA_FOLDER ${CMAKE_BINARY_DIR}/cuda)
set(CUDA_LABELS "")
set(CUDA_BYTES "")
if(CUDA_WANTED AND NVCC)
  # One translation to PTX serves all GPUs before compute capability 9.0, another one all others, those not named among them.
  set(CUDA_BEFORE_90 "")
  set(CUDA_SINCE_90 "")
  execute_process(COMMAND ${NVCC} --list-gpu-code OUTPUT_VARIABLE CUDA_KNOWN)
  foreach(architecture ${CUDA_ARCHITECTURES})
    if(NOT CUDA_KNOWN MATCHES "sm_${architecture}\n")
      message(NOTICE "this nvcc does not compile for sm_${architecture}: left out")
    elseif(architecture LESS 90)
      list(APPEND CUDA_BEFORE_90 -gencode arch=compute_80,code=sm_${architecture})
    else()
      list(APPEND CUDA_SINCE_90 -gencode arch=compute_90,code=sm_${architecture})
    endif()
  endforeach()
  if(CUDA_SINCE_90)
    list(APPEND CUDA_SINCE_90 -gencode arch=compute_90,code=compute_90)
  endif()
  set(CUDA_TARGETS ${CUDA_BEFORE_90} ${CUDA_SINCE_90})
  # Smaller images. Driver 580 loads them, which is the oldest one for what CUDA 13 compiles.
  set(CUDA_COMPRESS "")
  execute_process(COMMAND ${NVCC} --version OUTPUT_VARIABLE CUDA_VERSION_TEXT)
  if(CUDA_VERSION_TEXT MATCHES "release ([0-9]+)" AND CMAKE_MATCH_1 GREATER_EQUAL 13)
    set(CUDA_COMPRESS --compress-mode=size)
  endif()
  file(GLOB CUDA_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} src/device/cuda/kernels/*.cu)
  file(GLOB CUDA_HEADERS CONFIGURE_DEPENDS src/device/cuda/kernels/*.cuh src/device/cuda/kernel_*.h src/device/cuda/smem_sizes.h
       src/kernels/blocks.h src/kernels/grids.h src/kernels/grids.c src/kernels/weigh.h)
  foreach(source ${CUDA_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    set(image ${CUDA_FOLDER}/${name}.fatbin)
    # What is for some GPUs only; on others the driver finds nothing in it.
    set(targets ${CUDA_TARGETS})
    if(name MATCHES "_wgmma$|^attention_decode")
      if(NOT CUDA_SINCE_90)
        continue()
      endif()
      set(targets ${CUDA_SINCE_90})
    endif()
    if(name MATCHES "_wgmma$")
      set(targets -gencode arch=compute_90a,code=sm_90a)
    endif()
    # From the source folder by relative names, so that a compiler cache serves every checkout.
    add_custom_command(OUTPUT ${image} DEPENDS ${source} ${CUDA_HEADERS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                       COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${NVCC} -std=c++17 -O3 -fmad=false -Isrc -Iinclude -Werror all-warnings
                               -diag-suppress 128 ${CUDA_COMPRESS} ${targets} -fatbin -c -o ${image} ${source}
                       COMMENT "Compiling kernels ${name}" VERBATIM)
    list(APPEND CUDA_IMAGES ${image})
    string(APPEND CUDA_LABELS "    .quad spry_cuda_image_${name}\n")
    string(APPEND CUDA_BYTES "    .balign 64\nspry_cuda_image_${name}:\n    .incbin \"${image}\"\n")
  endforeach()
elseif(CUDA_WANTED)
  message(NOTICE "nvcc not found: built without GPU kernels")
endif()
if(NOT CUDA_IMAGES)
  return()
endif()
file(WRITE ${CUDA_FOLDER}/kernel_images.S.new "\
    .section .data.rel.ro,\"aw\"
    .balign 8
    .globl spry_cuda_images
    .type spry_cuda_images, %object
spry_cuda_images:
${CUDA_LABELS}    .quad 0
    .section .rodata
${CUDA_BYTES}    .section .note.GNU-stack,\"\",%progbits
")
configure_file(${CUDA_FOLDER}/kernel_images.S.new ${CUDA_FOLDER}/kernel_images.S COPYONLY)
set_source_files_properties(${CUDA_FOLDER}/kernel_images.S PROPERTIES OBJECT_DEPENDS "${CUDA_IMAGES}")
add_library(spry_cuda MODULE ${CUDA_FOLDER}/kernel_images.S)
set_target_properties(spry_cuda PROPERTIES PREFIX "" LINKER_LANGUAGE C)
target_link_libraries(spry_cuda PRIVATE hardening)
