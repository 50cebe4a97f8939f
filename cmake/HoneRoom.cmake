# hone_room(NAME [COLD [FAST regex]] [USES room ...] [LIBRARIES target ...])
#
# Builds one static library from src/NAME. Its headers are included as "NAME/header.h" through an include folder that
# contains only a symbolic link to this room. A header of a room that is not in USES, directly or indirectly, is
# therefore not found by the compiler.
#
# COLD: what the room does takes no time that counts, so that a release compiles it with -Og, in 60% of the time of -O2.
# FAST: except the sources whose paths in the room match, which are compiled with -O2 as a library hone_NAME_fast.
# hone_link_rooms() keeps these and the other rooms as fast as they are.
function(hone_room name)
  cmake_parse_arguments(ROOM "COLD" "FAST" "USES;LIBRARIES" ${ARGN})
  set(source_dir ${CMAKE_SOURCE_DIR}/src/${name})
  set(include_dir ${CMAKE_BINARY_DIR}/rooms/${name})
  file(MAKE_DIRECTORY ${include_dir})
  file(CREATE_LINK ${source_dir} ${include_dir}/${name} SYMBOLIC)

  # The patterns below match relative paths, so that names of folders above the checkout do not matter.
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${source_dir} ${source_dir}/*.cpp ${source_dir}/*.cu)
  if(NOT HONE_HIP)
    list(FILTER sources EXCLUDE REGEX "(^|/)hip/|(^|/)no_wgmma\\.cpp$")
  endif()
  if(HONE_HIP)
    hone_hip_room(${name} sources)
  elseif(NOT HONE_CUDA)
    list(FILTER sources EXCLUDE REGEX "(^|/)cuda/|(^|/)cuda\\.cpp$|\\.cu$")
  else()
    list(FILTER sources EXCLUDE REGEX "(^|/)no_cuda\\.cpp$")  # stubs for builds without CUDA
  endif()
  set(fast "")
  if(ROOM_FAST)
    set(fast ${sources})
    list(FILTER fast INCLUDE REGEX "${ROOM_FAST}")
    list(REMOVE_ITEM sources ${fast})
  endif()
  hone_add_room(${name} hone_${name} "${ROOM_COLD}" ${sources})
  if(fast)
    hone_add_room(${name} hone_${name}_fast "" ${fast})
    target_link_libraries(hone_${name}_fast PUBLIC hone_${name})
    target_link_libraries(hone_${name} PUBLIC hone_${name}_fast)
  endif()
  target_include_directories(hone_${name} PUBLIC ${include_dir})
  foreach(room IN LISTS ROOM_USES)
    target_link_libraries(hone_${name} PUBLIC hone_${room})
  endforeach()
  target_link_libraries(hone_${name} PUBLIC ${ROOM_LIBRARIES} Threads::Threads)
endfunction()

# hone_add_room(NAME TARGET COLD SOURCES): adds a library from sources of the room NAME, for hone_room().
function(hone_add_room name target cold)
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/src/${name}/ OUTPUT_VARIABLE sources)
  add_library(${target} STATIC ${sources})
  if(target MATCHES "^hone_(backend|ops_fast)$" AND CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O3>)
  endif()
  if(name STREQUAL "backend")  # the sources of its folder cpu differ in their instruction sets
    list(FILTER sources EXCLUDE REGEX "/src/backend/(cpu|cuda|hip)/")
  endif()
  hone_unite(${target} ${sources})
  # A precompiled header serves sources with its own compile options only.
  set(kind fast)
  if(cold)
    set(kind cold)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  else()
    set_property(GLOBAL APPEND PROPERTY hone_fast_rooms ${target})
  endif()
  if(NOT target MATCHES "^hone_(backend|ops_fast)$")
    get_property(precompiled GLOBAL PROPERTY hone_first_${kind}_room)
    if(NOT precompiled)
      set(precompiled ${target})
      set_property(GLOBAL PROPERTY hone_first_${kind}_room ${target})
    endif()
    hone_precompile(${target} ${precompiled} ${HONE_COMMON_HEADERS} <nlohmann/json.hpp>)
  endif()
  if(HONE_HIP AND name MATCHES "^(backend|ops)$")
    target_link_libraries(${target} PRIVATE ${HONE_HIP_RUNTIME} ${CMAKE_DL_LIBS})
    target_include_directories(${target} SYSTEM PRIVATE ${HONE_HIP_HEADERS})
    if(name STREQUAL "backend")  # HIP's functions are nodiscard, CUDA's are not
      target_compile_options(${target} PRIVATE -Wno-unused-result)
    endif()
  endif()
  if(HONE_CUDA AND name MATCHES "^(backend|ops)$")
    # PRIVATE, so that other rooms compile by the same commands with CUDA and without.
    target_link_libraries(${target} PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
    if(name STREQUAL "backend" AND CUDAToolkit_CUPTI_INCLUDE_DIR)  # often extras/CUPTI/include; without it backend/cuda/cupti.h leaves CUPTI out
      target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_CUPTI_INCLUDE_DIR})
    endif()
  endif()
endfunction()

# hone_link_rooms(TARGET)
#
# Puts the objects of the rooms that are not COLD, and of FAST sources, before all libraries. An inline function or
# template that several rooms use is then in the program as one of these has compiled it: the linker takes the first.
function(hone_link_rooms target)
  get_property(rooms GLOBAL PROPERTY hone_fast_rooms)
  foreach(room IN LISTS rooms)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${room}>)
  endforeach()
endfunction()

# hone_unite(TARGET SOURCES)
#
# With HONE_UNITE, compiles up to 32 sources of a target as one. This divides the time of a full build by three, most of
# which is spent on headers and templates that the sources share. Names in the unnamed namespaces of a room must then be
# unique. CPU and CUDA kernels share names on purpose, so sources of CUDA are compiled separately.
function(hone_unite target)
  if(NOT HONE_UNITE)
    return()
  endif()
  set(count 0)
  foreach(source IN LISTS ARGN)
    if(source MATCHES "/cuda\\.cpp$|\\.cu$")
      continue()
    endif()
    math(EXPR part "${count} / 32")
    math(EXPR count "${count} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${target}_${part})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# hone_unite_all(TARGET): with HONE_UNITE, compiles all sources of a small target as one.
function(hone_unite_all target)
  if(HONE_UNITE)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
endfunction()

# hone_precompile(TARGET FIRST HEADER...): with HONE_UNITE the headers of libraries that most sources include are parsed
# once. FIRST is a target with the same compile options that has parsed them, or TARGET itself. The headers are those of
# libraries, never those of a room that a source may not use.
# Builds without HONE_UNITE show that each source includes what it uses.
function(hone_precompile target first)
  if(NOT HONE_UNITE)
    return()
  endif()
  if(target STREQUAL first)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${first})
  endif()
  # ccache needs -fpch-preprocess. g++ 12 does not know a precompiled <string> as a system header and shows its own false
  # alarms about it.
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
endfunction()

set(HONE_COMMON_HEADERS <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstdint> <cstdio> <cstdlib> <cstring>
  <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <ranges> <set> <span> <sstream>
  <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>)
# Tests compile as fast with -Og as with -O0 and compute their references in half the time.
set(HONE_TEST_OPTIMIZATION -Og)
set(HONE_TEST_HEADERS ${HONE_COMMON_HEADERS} <nlohmann/json.hpp> <gmock/gmock.h> <gtest/gtest.h>)

# hone_add_generated(TARGET FILE): adds a generated source to a room, and to its first group.
function(hone_add_generated target file)
  target_sources(${target} PRIVATE ${file})
  if(HONE_UNITE)
    set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${target}_0)
  endif()
endfunction()

# hone_registry(ROOM [SUFFIX cpu|cuda])
#
# Generates register_all_ROOM(Registry&), which calls register_NAME(Registry&) for every folder src/ROOM/NAME that
# contains a NAME.cpp. With SUFFIX it generates register_all_ROOM_SUFFIX, which calls register_NAME_SUFFIX for every
# folder that contains a SUFFIX.cpp or SUFFIX.cu. Static initialisers are no alternative: the linker drops them from
# static libraries, and their order is undefined.
function(hone_registry room)
  cmake_parse_arguments(REGISTRY "" "SUFFIX" "" ${ARGN})
  if(NOT EXISTS ${CMAKE_SOURCE_DIR}/src/${room}/registry.h)
    return()
  endif()
  set(suffix "")
  if(REGISTRY_SUFFIX)
    set(suffix "_${REGISTRY_SUFFIX}")
  endif()
  file(GLOB entries CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src/${room} ${CMAKE_SOURCE_DIR}/src/${room}/*)
  set(type RegistryOf_${room}${suffix})
  set(declarations "")
  set(calls "")
  foreach(entry IN LISTS entries)
    set(folder ${CMAKE_SOURCE_DIR}/src/${room}/${entry})
    if(REGISTRY_SUFFIX)
      set(files ${folder}/${REGISTRY_SUFFIX}.cpp ${folder}/${REGISTRY_SUFFIX}.cu)
    else()
      set(files ${folder}/${entry}.cpp)
    endif()
    set(found FALSE)
    foreach(file IN LISTS files)
      if(EXISTS ${file})
        set(found TRUE)
      endif()
    endforeach()
    if(HONE_HIP AND REGISTRY_SUFFIX STREQUAL "cuda")
      file(STRINGS ${CMAKE_SOURCE_DIR}/src/backend/hip/left_out.txt left_out REGEX "^[^#]")
      if("${entry}/cuda.cpp" IN_LIST left_out OR "${entry}/cuda.cu" IN_LIST left_out)
        set(found FALSE)
      endif()
    endif()
    if(found)
      string(APPEND declarations "void register_${entry}${suffix}(${type}&);\n")
      string(APPEND calls "  register_${entry}${suffix}(registry);\n")
    endif()
  endforeach()
  string(CONCAT text "// Generated from the folders of src/${room}.\n#include \"${room}/registry.h\"\n\nnamespace hone {\n\n"
         "${declarations}\nvoid register_all_${room}${suffix}(${type}& registry) {\n  (void)registry;\n${calls}}\n\n"
         "}  // namespace hone\n")
  set(file ${CMAKE_BINARY_DIR}/generated/${room}${suffix}_registry.cpp)
  file(GENERATE OUTPUT ${file} CONTENT "${text}")
  hone_add_generated(hone_${room} ${file})
endfunction()

# hone_test(NAME ROOM [room ...])
#
# Builds one GoogleTest program, NAME_test, from tests/NAME/*.cpp.
function(hone_test name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  foreach(room IN LISTS ARGN)
    target_link_libraries(${name}_test PRIVATE hone_${room})
  endforeach()
  target_link_libraries(${name}_test PRIVATE hone_test_support)
  target_compile_options(${name}_test PRIVATE ${HONE_TEST_OPTIMIZATION})
  hone_unite(${name}_test ${sources})
  hone_precompile(${name}_test hone_test_headers ${HONE_TEST_HEADERS})
  set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  hone_discover_tests(${name}_test ${name})
endfunction()

# Seconds after which a test counts as hung. The limit is large, because a load on the machine must not make a test
# fail: under scripts/check_busy.sh a test gets about one second of CPU time in 150 s.
set(HONE_TEST_TIMEOUT 36000)

# hone_discover_tests(TARGET LABEL)
#
# Registers every test of a GoogleTest program with ctest. The program lists its tests after it is linked. Those of
# programs with HONE_TEST_COST come first, except for what ctest has measured to take longer, so that a first run does not
# end with the wait for a long one.
function(hone_discover_tests target label)
  set(cost 0)
  if(DEFINED HONE_TEST_COST)
    set(cost ${HONE_TEST_COST})
  endif()
  gtest_discover_tests(${target} DISCOVERY_TIMEOUT ${HONE_TEST_TIMEOUT}
                       PROPERTIES TIMEOUT ${HONE_TEST_TIMEOUT} LABELS ${label} COST ${cost})
endfunction()

# hone_embed_folder(ROOM FOLDER FUNCTION TYPE HEADER)
#
# Embeds the text files of a folder in a room, for FUNCTION(), which returns a span of TYPE {name, text}, sorted by name,
# and which HEADER declares. CMake reads the files when it configures, and configures again after a change of one of
# them.
function(hone_embed_folder room folder function type header)
  file(GLOB_RECURSE names CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/${folder} ${CMAKE_SOURCE_DIR}/${folder}/*)
  list(SORT names)
  set(entries "")
  foreach(name IN LISTS names)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/${name})
    file(READ ${CMAKE_SOURCE_DIR}/${folder}/${name} text)
    string(APPEND entries "    {\"${name}\", R\"hone_file(${text})hone_file\"},\n")
  endforeach()
  string(CONCAT source "// Generated from ${folder}/.\n#include \"${header}\"\n\nnamespace hone {\n\n"
         "std::span<const ${type}> ${function}() {\n  static constexpr ${type} kFiles[] = {\n"
         "${entries}  };\n  return kFiles;\n}\n\n}  // namespace hone\n")
  set(file ${CMAKE_BINARY_DIR}/generated/${function}.cpp)
  set(old "")
  if(EXISTS ${file})
    file(READ ${file} old)
  endif()
  if(NOT old STREQUAL source)
    file(WRITE ${file} "${source}")
  endif()
  hone_add_generated(hone_${room} ${file})
endfunction()
