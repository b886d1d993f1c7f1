# Installs headers, libraries and programs, with a CMake package and a pkg-config file.

include(CMakePackageConfigHelpers)

install(DIRECTORY include/gradus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(TARGETS gradus gradus_static EXPORT gradus)

get_property(programs GLOBAL PROPERTY gradus_programs)
if(programs)
    install(TARGETS ${programs})
endif()

# ---- find_package(gradus): gradus::gradus and gradus::gradus_static -----------------------------

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradus)
set(version_file ${PROJECT_BINARY_DIR}/gradus-config-version.cmake)

# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${version_file} COMPATIBILITY SameMinorVersion)
install(FILES ${version_file} DESTINATION ${package_dir})
install(EXPORT gradus NAMESPACE gradus:: FILE gradus-config.cmake DESTINATION ${package_dir})

# ---- pkg-config ---------------------------------------------------------------------------------

list(JOIN gradus_link_words " " pc_libs_private)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE pc_libdir)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE
           pc_includedir)

# In two steps, since the prefix may be chosen as late as `cmake --install --prefix`.
set(pc_prefix "@CMAKE_INSTALL_PREFIX@")
set(pc_file ${PROJECT_BINARY_DIR}/gradus.pc)
configure_file(cmake/gradus.pc.in ${pc_file}.in @ONLY)
install(CODE "configure_file([[${pc_file}.in]] [[${pc_file}]] @ONLY)")
install(FILES ${pc_file} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
