# `cmake --install` puts the library, its headers, the tool and a package for find_package(kvarto).
include(CMakePackageConfigHelpers)

set(kvarto_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvarto)
install(TARGETS kvarto EXPORT kvarto_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/kvarto DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT kvarto_targets FILE kvartoTargets.cmake NAMESPACE kvarto:: DESTINATION ${kvarto_package_dir})
install(FILES LICENSE THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET kvarto_cli)
  install(TARGETS kvarto_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/kvartoConfig.cmake.in ${PROJECT_BINARY_DIR}/kvartoConfig.cmake
  INSTALL_DESTINATION ${kvarto_package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvartoConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvartoConfig.cmake ${PROJECT_BINARY_DIR}/kvartoConfigVersion.cmake
  DESTINATION ${kvarto_package_dir})
