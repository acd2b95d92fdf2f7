# What `cmake --install` (and `make install`) puts in place: program, libraries, headers, files for pkg-config and CMake,
# manual page, documentation and examples. The bundled models are linked into the program.
include(CMakePackageConfigHelpers)

# Files that say where they are, so an installed tree can be moved as a whole.
set(PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/spry)
set(PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH PREFIX_FROM_PKGCONFIG /prefix/${PKGCONFIG_DIR} /prefix)
configure_file(cmake/spry.pc.in spry.pc @ONLY)
configure_file(docs/spry.1.in spry.1 @ONLY)
configure_package_config_file(cmake/spryConfig.cmake.in spryConfig.cmake INSTALL_DESTINATION ${PACKAGE_DIR})
write_basic_package_version_file(spryConfigVersion.cmake COMPATIBILITY SameMinorVersion)

if(TARGET spry)
  install(TARGETS spry RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${CMAKE_BINARY_DIR}/spry.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(TARGETS libspry_shared EXPORT spryTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS libspry EXPORT spryStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT spryTargets NAMESPACE spry:: DESTINATION ${PACKAGE_DIR})
install(EXPORT spryStaticTargets NAMESPACE spry:: DESTINATION ${PACKAGE_DIR})
install(FILES ${CMAKE_BINARY_DIR}/spryConfig.cmake ${CMAKE_BINARY_DIR}/spryConfigVersion.cmake DESTINATION ${PACKAGE_DIR})
install(FILES ${CMAKE_BINARY_DIR}/spry.pc DESTINATION ${PKGCONFIG_DIR})
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES bindings/python/spry.py bindings/python/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/spry/python)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs FILES_MATCHING PATTERN "*.md")
