# Vulkan: kernels in GLSL become SPIR-V by glslc and are linked into the library. The loader is opened at run time. Without
# glslc or Vulkan's headers the program is built without Vulkan and says so when it is asked for it.
set(SPRY_VULKAN "AUTO" CACHE STRING "Build for Vulkan: AUTO (where glslc and Vulkan's headers are found) or OFF")
find_program(GLSLC glslc)
find_path(VULKAN_HEADERS vulkan/vulkan_core.h)
set(VULKAN_FILES "/platform/vulkan_loader\\.c$|/vulkan/vulkan_(driver|gpu|kernels|memory|stream)\\.c$")
if(NOT GLSLC OR NOT VULKAN_HEADERS OR SPRY_VULKAN STREQUAL "OFF")
  list(FILTER LIB_SOURCES EXCLUDE REGEX "${VULKAN_FILES}")
  return()
endif()
list(FILTER LIB_SOURCES EXCLUDE REGEX "/vulkan/vulkan_absent\\.c$")
set(VULKAN_BUILT ON)
set(VULKAN_FOLDER ${CMAKE_BINARY_DIR}/vulkan)
set(VULKAN_KERNELS ${CMAKE_SOURCE_DIR}/src/device/vulkan/kernels)
set(VULKAN_ARGS ${VULKAN_FOLDER}/kernel_args.glsl)
set(KERNEL_ARGS ${CMAKE_SOURCE_DIR}/src/device/cuda/kernel_args.h)
file(MAKE_DIRECTORY ${VULKAN_FOLDER})
add_custom_command(OUTPUT ${VULKAN_ARGS} DEPENDS ${KERNEL_ARGS} cmake/kernel_args_glsl.cmake
                   COMMAND ${CMAKE_COMMAND} -DFROM=${KERNEL_ARGS} -DTO=${VULKAN_ARGS} -P ${CMAKE_SOURCE_DIR}/cmake/kernel_args_glsl.cmake
                   COMMENT "Translating kernel arguments to GLSL" VERBATIM)
file(GLOB VULKAN_SOURCES CONFIGURE_DEPENDS ${VULKAN_KERNELS}/*.comp)
file(GLOB VULKAN_INCLUDES CONFIGURE_DEPENDS ${VULKAN_KERNELS}/*.glsl)
set(VULKAN_BYTES "")
foreach(source ${VULKAN_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  set(image ${VULKAN_FOLDER}/${name}.spv)
  add_custom_command(OUTPUT ${image} DEPENDS ${source} ${VULKAN_INCLUDES} ${VULKAN_ARGS}
                     COMMAND ${GLSLC} --target-env=vulkan1.3 -O -Werror -I${VULKAN_FOLDER} -I${VULKAN_KERNELS} -o ${image} ${source}
                     COMMENT "Compiling Vulkan kernels ${name}" VERBATIM)
  list(APPEND VULKAN_IMAGES ${image})
  string(APPEND VULKAN_BYTES "    embed spry_vulkan_image_${name}, 16\n    .incbin \"${image}\"
    embed spry_vulkan_image_${name}_end\n    .byte 0\n")
endforeach()
file(WRITE ${VULKAN_FOLDER}/kernel_images.S.new "#include \"base/embed.S\"\n    embed_begin\n${VULKAN_BYTES}    embed_end\n")
configure_file(${VULKAN_FOLDER}/kernel_images.S.new ${VULKAN_FOLDER}/vulkan_images.S COPYONLY)
set_source_files_properties(${VULKAN_FOLDER}/vulkan_images.S PROPERTIES OBJECT_DEPENDS "${VULKAN_IMAGES}")
list(APPEND LIB_SOURCES ${VULKAN_FOLDER}/vulkan_images.S)
