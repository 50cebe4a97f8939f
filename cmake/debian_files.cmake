# Run by CPack after it has installed hone into the folder that it packs. Changes what Debian's policy places elsewhere:
# the copyright file, the changelog, compressed pages and zsh's folder. Other packages stay as installed.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()

# CPack only warns without the first of these and would pack no dependencies.
foreach(program dpkg-shlibdeps file)
  find_program(found_${program} ${program})
  if(NOT found_${program})
    message(FATAL_ERROR "package: ${program} is not installed; run scripts/setup.sh --package")
  endif()
endforeach()

set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX}/share)
set(doc ${CPACK_TEMPORARY_INSTALL_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX}/${CPACK_HONE_DOC_DIR})

set(text "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: hone
Comment: The program contains code of the libraries in licenses/, next to this file.

Files: *
Copyright: 2026 the authors of hone
License: Apache-2.0
 The full text is in /usr/share/common-licenses/Apache-2.0.
")
file(WRITE ${doc}/copyright "${text}")
file(REMOVE ${doc}/LICENSE)

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH, if it is set
file(WRITE ${doc}/changelog.Debian
  "${CPACK_PACKAGE_NAME} (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Built from the sources; see changelog.gz for the changes.

 -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${date}
")
file(RENAME ${doc}/CHANGELOG.md ${doc}/changelog)

execute_process(COMMAND gzip -9n ${doc}/changelog ${doc}/changelog.Debian ${share}/man/man1/hone.1
  COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${share}/zsh/site-functions ${share}/zsh/vendor-completions)
file(CHMOD ${doc}/copyright ${doc}/changelog.gz ${doc}/changelog.Debian.gz ${share}/man/man1/hone.1.gz
  PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
