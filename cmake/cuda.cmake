# Kernels for NVIDIA GPUs, where nvcc is found: each file of src/device/cuda/kernels becomes an image for several GPUs,
# and all images are linked into the library. Without nvcc the list of images is empty. Nothing of NVIDIA's is linked.
set(SPRY_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPUs to compile for; others run the last one's PTX (80;86;89;90;100)")
option(SPRY_CUDA "Compile kernels for NVIDIA GPUs where nvcc is found" ON)
find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
set(CUDA_FOLDER ${CMAKE_BINARY_DIR}/cuda)
set(CUDA_LABELS "")
set(CUDA_BYTES "")
if(SPRY_CUDA AND NVCC)
  set(CUDA_TARGETS "")
  foreach(architecture ${SPRY_CUDA_ARCHITECTURES})
    list(APPEND CUDA_TARGETS -gencode arch=compute_${architecture},code=sm_${architecture})
    set(CUDA_LAST ${architecture})
  endforeach()
  list(APPEND CUDA_TARGETS -gencode arch=compute_${CUDA_LAST},code=compute_${CUDA_LAST})
  # Smaller images. Driver 580 loads them, which is the oldest one for what CUDA 13 compiles.
  set(CUDA_COMPRESS "")
  execute_process(COMMAND ${NVCC} --version OUTPUT_VARIABLE CUDA_VERSION_TEXT)
  if(CUDA_VERSION_TEXT MATCHES "release ([0-9]+)" AND CMAKE_MATCH_1 GREATER_EQUAL 13)
    set(CUDA_COMPRESS --compress-mode=size)
  endif()
  file(GLOB CUDA_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} src/device/cuda/kernels/*.cu)
  file(GLOB CUDA_HEADERS CONFIGURE_DEPENDS src/device/cuda/kernels/*.cuh src/device/cuda/*_args.h src/kernels/blocks.h src/kernels/weigh.h)
  foreach(source ${CUDA_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    set(image ${CUDA_FOLDER}/${name}.fatbin)
    # What only one kind of GPU has: its own code for that, and nothing for the others.
    set(targets ${CUDA_TARGETS})
    if(name MATCHES "_cores$")
      set(targets -gencode arch=compute_80,code=compute_80)
      if("90" IN_LIST SPRY_CUDA_ARCHITECTURES)
        list(APPEND targets -gencode arch=compute_90a,code=sm_90a)
      endif()
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
elseif(SPRY_CUDA)
  message(NOTICE "nvcc not found: built without kernels for GPUs")
endif()
file(WRITE ${CUDA_FOLDER}/kernel_images.S.new "\
    .section .data.rel.ro,\"aw\"
    .balign 8
    .globl spry_cuda_images
    .hidden spry_cuda_images
spry_cuda_images:
${CUDA_LABELS}    .quad 0
    .section .rodata
${CUDA_BYTES}    .section .note.GNU-stack,\"\",%progbits
")
configure_file(${CUDA_FOLDER}/kernel_images.S.new ${CUDA_FOLDER}/kernel_images.S COPYONLY)
set_source_files_properties(${CUDA_FOLDER}/kernel_images.S PROPERTIES OBJECT_DEPENDS "${CUDA_IMAGES}")
list(APPEND LIB_SOURCES ${CUDA_FOLDER}/kernel_images.S)
