# Finds the libraries and sets the compiler flags for all of hone.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(Threads REQUIRED)
# FLINT. Before version 3, Arb, Antic and Calcium are separate libraries.
find_library(HONE_FLINT flint REQUIRED)
find_library(HONE_ARB NAMES flint-arb arb)
find_library(HONE_CALCIUM calcium)
find_library(HONE_ANTIC antic)
find_library(HONE_GMP gmp REQUIRED)
add_library(hone_algebra INTERFACE)
foreach(library HONE_CALCIUM HONE_ARB HONE_ANTIC HONE_FLINT HONE_GMP)
  if(${library})
    target_link_libraries(hone_algebra INTERFACE ${${library}})
  endif()
endforeach()
find_library(HONE_SECCOMP NAMES libseccomp.a seccomp REQUIRED)  # seccomp filter of the sandbox

# Libraries for reading compressed data.
find_library(HONE_ZLIB NAMES libz.a z REQUIRED)
find_library(HONE_ZSTD NAMES libzstd.a zstd REQUIRED)
find_library(HONE_SNAPPY NAMES libsnappy.a snappy REQUIRED)
find_library(HONE_LZ4 NAMES liblz4.a lz4 REQUIRED)
set(HONE_COMPRESSION ${HONE_ZLIB} ${HONE_ZSTD} ${HONE_SNAPPY} ${HONE_LZ4})

find_library(HONE_PCRE2 NAMES libpcre2-8.a pcre2-8 REQUIRED)  # regular expressions

# TLS of the HTTP server. Archives, so that the start of the program does not load libraries that few runs need.
find_path(HONE_OPENSSL_HEADERS openssl/ssl.h REQUIRED)
find_library(HONE_SSL NAMES libssl.a ssl REQUIRED)
find_library(HONE_CRYPTO NAMES libcrypto.a crypto REQUIRED)
set(HONE_TLS ${HONE_SSL} ${HONE_CRYPTO} ${CMAKE_DL_LIBS})

find_path(HONE_CURL_HEADERS curl/curl.h REQUIRED)  # libcurl itself is loaded at the first download
find_path(HONE_BOOST_HEADERS boost/beast/version.hpp REQUIRED)  # headers only, in room http

find_program(HONE_CCACHE ccache)
if(HONE_CCACHE)
  # Precompiled headers (HONE_UNITE) are cached with this sloppiness only, as ccache's manual says.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${HONE_CCACHE})
endif()
# Use the system's default linker, not lld. With lld 14 (Debian 12) a program terminates when an exception leaves
# certain functions that g++ 12 splits into a hot and a cold part; the test Jinja.EndlessTemplatesStop shows it.

# The baseline is x86-64-v3; kernels for wider vectors are chosen at run time. Contraction and fast-math are off, so
# that debug, release and sanitizer builds compute the same bits. -fno-trapping-math would keep the bits by definition,
# but with it g++ 12.2 miscompiles vectorised sums of conditional terms (tests/ops/rows_test.cpp).
set(HONE_CXX_OPTIONS -march=x86-64-v3 -ffp-contract=off -fno-math-errno
                     -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror=return-type
                     -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND HONE_CXX_OPTIONS -Wno-restrict)  # g++ 12 gives false positives in std::string
  # Below 1 GB g++ does not look for memory that it could reuse, which takes 8 to 15% of its time.
  list(APPEND HONE_CXX_OPTIONS --param=ggc-min-heapsize=1000000)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${HONE_CXX_OPTIONS}>")

if(HONE_CUDA)
  # As on the CPU, the compiler must not contract a * b + c to an fma; only explicit fma calls are fused.
  set(HONE_CUDA_OPTIONS --fmad=false --extended-lambda --expt-relaxed-constexpr -lineinfo -Xcompiler=-march=x86-64-v3)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${HONE_CUDA_OPTIONS}>")
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(HONE_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${HONE_CCACHE})
  endif()
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # the rooms backend and ops override it with -O3
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -D_GLIBCXX_ASSERTIONS")

if(HONE_SANITIZE)
  add_compile_options(-fsanitize=${HONE_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${HONE_SANITIZE})
  if(HONE_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=all)
  endif()
endif()
if(HONE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
