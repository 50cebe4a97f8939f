# xgrammar, which the room grammar uses, is compiled from its sources: no distribution packages it. They are outside of
# this checkout, where scripts/setup.sh puts them.
set(HONE_XGRAMMAR_VERSION 0.2.8)

if(DEFINED ENV{HONE_THIRD_PARTY})
  set(hone_third_party $ENV{HONE_THIRD_PARTY})
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(hone_third_party $ENV{XDG_CACHE_HOME}/hone/third_party)
else()
  set(hone_third_party $ENV{HOME}/.cache/hone/third_party)
endif()
set(HONE_THIRD_PARTY ${hone_third_party} CACHE PATH "Folder with the sources of libraries that are not packaged")

set(xgrammar ${HONE_THIRD_PARTY}/xgrammar-${HONE_XGRAMMAR_VERSION})
if(NOT EXISTS ${xgrammar}/LICENSE)
  message(FATAL_ERROR "${xgrammar} is missing: run scripts/setup.sh, or set HONE_THIRD_PARTY to the folder that has it")
endif()

# Without the bindings for Python. Warnings are xgrammar's own matter, and so is the language: with C++20 clang refuses
# its incomplete types. All other options are hone's. It is compiled in two parts that call each other: what reads a
# schema, a grammar or a regular expression and what builds its rules runs once a request, and is compiled as a room that
# is COLD (HoneRoom.cmake).
file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${xgrammar}/cpp ${xgrammar}/cpp/*.cc)
list(FILTER sources EXCLUDE REGEX "^tvm_ffi/")
set(readers ${sources})
list(FILTER readers INCLUDE REGEX "(converter|structural_tag|grammar_parser|grammar_printer|testing)[^/]*\\.cc$|^converter_ext/|^(fsm_builder|grammar|grammar_builder|grammar_functor|suffix_automata)\\.cc$")
list(REMOVE_ITEM sources ${readers})
list(TRANSFORM sources PREPEND ${xgrammar}/cpp/)
list(TRANSFORM readers PREPEND ${xgrammar}/cpp/)
add_library(xgrammar STATIC ${sources})
add_library(xgrammar_readers STATIC ${readers})
foreach(part xgrammar xgrammar_readers)
  target_include_directories(${part} SYSTEM PUBLIC ${xgrammar}/include ${xgrammar}/3rdparty/dlpack/include
                             PRIVATE ${xgrammar}/3rdparty/picojson)
  target_compile_definitions(${part} PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
                             XGRAMMAR_LOG_CUSTOMIZE=1)
  target_compile_options(${part} PRIVATE -w -fwrapv)  # its sum of the digits of a long \x escape overflows
  set_target_properties(${part} PROPERTIES CXX_STANDARD 17)
  target_link_libraries(${part} PUBLIC Threads::Threads)
  if(HONE_UNITE)
    # Its headers take longer to parse than its code to compile. One source repeats the name of another's constant.
    set_target_properties(${part} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 20)
  endif()
endforeach()
target_compile_options(xgrammar_readers PRIVATE $<$<CONFIG:Release>:-Og>)
target_link_libraries(xgrammar PUBLIC xgrammar_readers)
target_link_libraries(xgrammar_readers PUBLIC xgrammar)
set_source_files_properties(${xgrammar}/cpp/converter_ext/minimax_m3.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
