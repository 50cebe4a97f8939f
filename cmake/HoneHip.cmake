# The HIP backend: the portable kernels of the CUDA backend (src/backend/gpu/kernel.cuh), compiled by clang for GPUs of
# AMD. Written for ROCm (not tried) and for Debian 12's packages: a newer clang than its hipcc's, its headers of HIP and
# its device libraries.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "HONE_HIP needs clang++ as the C++ compiler: use the preset hip")
endif()

# Returns TRUE in `known` if the compiler generates code for a GPU.
function(hone_hip_knows architecture known)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} --target=amdgcn-amd-amdhsa -mcpu=${architecture} -nogpulib -x c -S
                          -o /dev/null /dev/null RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
  if(result EQUAL 0)
    set(${known} TRUE PARENT_SCOPE)
  else()
    set(${known} FALSE PARENT_SCOPE)
  endif()
endfunction()

set(default_architectures "")
foreach(architecture gfx942 gfx950)
  hone_hip_knows(${architecture} known)
  if(known)
    list(APPEND default_architectures ${architecture})
  else()
    message(STATUS "HIP: ${CMAKE_CXX_COMPILER} does not know ${architecture}; there is no code for it")
  endif()
endforeach()
set(HONE_HIP_ARCHITECTURES "${default_architectures}" CACHE STRING "GPUs of AMD to build kernels for")
if(NOT HONE_HIP_ARCHITECTURES)
  message(FATAL_ERROR "HONE_HIP: ${CMAKE_CXX_COMPILER} knows neither gfx942 nor gfx950; use clang 18 or later")
endif()

find_path(HONE_ROCM_BITCODE ockl.bc REQUIRED PATHS /opt/rocm/amdgcn/bitcode
          /usr/lib/x86_64-linux-gnu/amdgcn/bitcode NO_DEFAULT_PATH)
find_path(HONE_HIP_HEADERS hip/hip_runtime.h REQUIRED PATHS /opt/rocm/include)
find_library(HONE_HIP_RUNTIME amdhip64 REQUIRED PATHS /opt/rocm/lib)

# The device libraries, with the version of a GPU that is newer than they are: gfx942 is 9402. The number selects
# instructions of other generations only.
set(bitcode ${CMAKE_BINARY_DIR}/rocm_bitcode)
file(GLOB libraries ${HONE_ROCM_BITCODE}/*.bc)
file(MAKE_DIRECTORY ${bitcode})
foreach(library IN LISTS libraries)
  cmake_path(GET library FILENAME name)
  file(CREATE_LINK ${library} ${bitcode}/${name} SYMBOLIC)
endforeach()
foreach(architecture IN LISTS HONE_HIP_ARCHITECTURES)
  if(NOT architecture MATCHES "^gfx([0-9]+)([0-9a-f])([0-9a-f])$")
    message(FATAL_ERROR "HONE_HIP_ARCHITECTURES: ${architecture} is not the name of a GPU, such as gfx942")
  endif()
  set(version ${CMAKE_MATCH_1}${CMAKE_MATCH_2}${CMAKE_MATCH_3})
  math(EXPR number "${CMAKE_MATCH_1} * 1000 + 0x${CMAKE_MATCH_2} * 100 + 0x${CMAKE_MATCH_3}")
  set(file ${bitcode}/oclc_isa_version_${version}.bc)
  if(EXISTS ${file})
    continue()
  endif()
  file(WRITE ${bitcode}/${version}.ll "target triple = \"amdgcn-amd-amdhsa\"\n"
       "@__oclc_ISA_version = linkonce_odr protected local_unnamed_addr addrspace(4) constant i32 ${number}, align 4\n")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} --target=amdgcn-amd-amdhsa -nogpulib -x ir -emit-llvm -c
                          ${bitcode}/${version}.ll -o ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

list(TRANSFORM HONE_HIP_ARCHITECTURES PREPEND --offload-arch= OUTPUT_VARIABLE offload)
cmake_path(GET HONE_HIP_HEADERS PARENT_PATH rocm_path)
# a * b + c is not contracted to an fma, as in a build for CUDA (--fmad=false). A warning is an error.
set(HONE_HIP_OPTIONS -x hip ${offload} --rocm-path=${rocm_path} --rocm-device-lib-path=${bitcode} -ffp-contract=off
                     -Werror -Wno-missing-designated-field-initializers)
add_compile_definitions(HONE_HIP __HIP_PLATFORM_AMD__ HIP_DISABLE_WARP_SYNC_BUILTINS)

# hone_hip_room(NAME VARIABLE): takes from the list VARIABLE what a build for HIP leaves out, and compiles kernels as HIP.
function(hone_hip_room name variable)
  set(list ${${variable}})
  file(STRINGS ${CMAKE_SOURCE_DIR}/src/backend/hip/left_out.txt left_out REGEX "^[^#]")
  if(name STREQUAL "ops")
    list(REMOVE_ITEM list ${left_out})
    list(FILTER list EXCLUDE REGEX "(^|/)no_cuda\\.cpp$")
  elseif(name STREQUAL "backend")
    list(FILTER list EXCLUDE REGEX "^no_cuda\\.cpp$|^cuda/(cublas.*|cupti|gemm_search|gpu_counters|nvidia|scaled_gemm|usage)\\.(cpp|cu)$")
  endif()
  foreach(source IN LISTS list)
    if(source MATCHES "\\.cu$")
      set_source_files_properties(${CMAKE_SOURCE_DIR}/src/${name}/${source} PROPERTIES LANGUAGE CXX
        COMPILE_OPTIONS "${HONE_HIP_OPTIONS}" SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set(${variable} ${list} PARENT_SCOPE)
endfunction()
