# Installation by `cmake --install`, and packages by CPack: a .tar.gz and, on Debian and Ubuntu, a .deb.
# docs/packaging.md describes both, and scripts/package.sh makes the packages.
include(GNUInstallDirs)

set(HONE_MAINTAINER "The hone maintainers <maintainers@hone.example>" CACHE STRING
  "Maintainer of the packages: NAME <ADDRESS>")
set(HONE_PACKAGE hone)
if(HONE_CUDA)
  set(HONE_PACKAGE hone-cuda)
endif()
set(HONE_DOC_DIR ${CMAKE_INSTALL_DATAROOTDIR}/doc/${HONE_PACKAGE})
# Directories get these permissions whatever the umask of the user that installs.
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
  WORLD_READ WORLD_EXECUTE)

install(TARGETS hone RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES include/hone_reward.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY recipes/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/hone/recipes)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${HONE_DOC_DIR})
install(DIRECTORY docs DESTINATION ${HONE_DOC_DIR})  # README.md names its pages as docs/PAGE.md

# hone_install_output(FILE ARGUMENT...)
#
# Installs what the program prints when it is run with the arguments as FILE, relative to the prefix. The program runs
# when it is installed, so that its target needs no additional build step. Nothing is written to the build folder, which
# would leave root's files there after an installation by root.
function(hone_install_output file)
  list(JOIN ARGN " " arguments)
  cmake_path(GET file PARENT_PATH folder)
  string(CONFIGURE [[
    set(file "${CMAKE_INSTALL_PREFIX}/@file@")
    message(STATUS "Installing: $ENV{DESTDIR}${file}")
    file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/@folder@" TYPE DIRECTORY FILES)
    file(MAKE_DIRECTORY "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/@folder@")
    execute_process(COMMAND "$<TARGET_FILE:hone>" @arguments@ OUTPUT_FILE "$ENV{DESTDIR}${file}"
      COMMAND_ERROR_IS_FATAL ANY)
    file(CHMOD "$ENV{DESTDIR}${file}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${file}")
  ]] code @ONLY)
  install(CODE "${code}")
endfunction()
hone_install_output(${CMAKE_INSTALL_MANDIR}/man1/hone.1 man)
hone_install_output(${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions/hone completion bash)
hone_install_output(${CMAKE_INSTALL_DATAROOTDIR}/zsh/site-functions/_hone completion zsh)
hone_install_output(${CMAKE_INSTALL_DATAROOTDIR}/fish/vendor_completions.d/hone.fish completion fish)

# Licenses of the libraries whose code is part of the program: those linked statically, and headers.
find_program(HONE_DPKG_QUERY dpkg-query)
find_file(HONE_JSON_HEADER nlohmann/json.hpp)
find_file(HONE_BEAST_HEADER boost/beast.hpp)
foreach(file IN LISTS HONE_COMPRESSION HONE_PCRE2 HONE_SECCOMP HONE_SSL HONE_JSON_HEADER)
  if(NOT HONE_DPKG_QUERY OR NOT file MATCHES "\\.(a|hpp)$")
    continue()
  endif()
  execute_process(COMMAND ${HONE_DPKG_QUERY} --search ${file} OUTPUT_VARIABLE owner ERROR_QUIET)
  string(REGEX REPLACE "[:,].*" "" owner "${owner}")
  if(owner AND EXISTS /usr/share/doc/${owner}/copyright)
    file(REAL_PATH /usr/share/doc/${owner}/copyright license)
    install(FILES ${license} DESTINATION ${HONE_DOC_DIR}/licenses RENAME ${owner})
  endif()
endforeach()
foreach(file LICENSE NOTICE 3rdparty/dlpack/LICENSE)
  string(REPLACE "/" "-" license xgrammar-${file})
  install(FILES ${HONE_THIRD_PARTY}/xgrammar-${HONE_XGRAMMAR_VERSION}/${file} DESTINATION ${HONE_DOC_DIR}/licenses
          RENAME ${license})
endforeach()
if(HONE_CUDA)
  install(FILES ${CUDAToolkit_LIBRARY_ROOT}/EULA.txt DESTINATION ${HONE_DOC_DIR}/licenses RENAME cuda-cudart OPTIONAL)
endif()

# The program links shared libraries of the distribution, so a package is for the distribution that it was built on.
cmake_host_system_information(RESULT distribution QUERY DISTRIB_INFO)
set(distribution ${distribution_ID}${distribution_VERSION_ID})  # debian12, ubuntu24.04

set(CPACK_GENERATOR TGZ)
find_program(HONE_DPKG dpkg)
if(HONE_DPKG)
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_PACKAGE_NAME ${HONE_PACKAGE})
set(CPACK_PACKAGE_FILE_NAME ${HONE_PACKAGE}-${PROJECT_VERSION}-${distribution}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_CONTACT ${HONE_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train language models to reason, in one native program")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS ${CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS})

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1~${distribution})
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${HONE_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Programs and libraries that hone opens at their first use (docs/dependencies.md).
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libcurl4, ca-certificates, python3")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, bubblewrap")
set(description "hone trains language models from text or a Hugging Face model,
by pre-training, supervised fine-tuning and GRPO, evaluates them and
chats with them.")
set(processor "It needs a processor with AVX2 (x86-64-v3).")
if(HONE_CUDA)
  string(APPEND CPACK_DEBIAN_PACKAGE_RECOMMENDS ", libcublas-13-0")
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS hone)
  set(CPACK_DEBIAN_PACKAGE_REPLACES hone)
  set(CPACK_DEBIAN_PACKAGE_PROVIDES "hone (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${CPACK_PACKAGE_DESCRIPTION_SUMMARY} (CUDA)")
  set(CPACK_PACKAGE_DESCRIPTION "${description}\n\nThis package uses one NVIDIA GPU of compute capability 8.0 or later, with
driver 580 or later and cuBLASLt 13, and runs on the processor without one.
${processor}")
else()
  set(CPACK_PACKAGE_DESCRIPTION "${description}\n\nThis package runs on the processor. hone-cuda also uses a GPU.
${processor}")
endif()
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/debian_files.cmake)
set(CPACK_HONE_DOC_DIR ${HONE_DOC_DIR})
include(CPack)
