# Installs headers, libraries and programs, with a CMake package and a pkg-config file: with all that
# is installed (GRADUS_INSTALL), or only as the component `gradus`. The rules are always there, since a
# project around this one may export a library that links with this one, whose export set names it.

include(CMakePackageConfigHelpers)

set(install_how COMPONENT gradus)
if(NOT GRADUS_INSTALL)
    list(APPEND install_how EXCLUDE_FROM_ALL)
endif()

install(DIRECTORY include/gradus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${install_how}
        FILES_MATCHING PATTERN "*.h")
install(CODE "set(source [[${PROJECT_SOURCE_DIR}]])
    set(copy [[${PROJECT_BINARY_DIR}/installed_docs]])
    set(target [[${CMAKE_INSTALL_FULL_DOCDIR}]])
    set(headers [[${CMAKE_INSTALL_FULL_INCLUDEDIR}]])
    include([[${PROJECT_SOURCE_DIR}/cmake/install_docs.cmake]])" ${install_how})
install(DIRECTORY ${PROJECT_BINARY_DIR}/installed_docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}
        ${install_how})
install(PROGRAMS scripts/plot DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME gradus-plot ${install_how})
# A build of some targets, such as that of scripts/train, installs the programs that it has. The
# libraries must be there.
foreach(target IN ITEMS gradus gradus_static)
    install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
        message(FATAL_ERROR \"gradus: $<TARGET_FILE:${target}> is not built. First run: \"
                            \"cmake --build ${PROJECT_BINARY_DIR}\")
    endif()" ${install_how})
endforeach()
install(
    TARGETS gradus gradus_static EXPORT gradus
    RUNTIME ${install_how} LIBRARY ${install_how} ARCHIVE ${install_how})

get_property(programs GLOBAL PROPERTY gradus_programs)
foreach(program IN LISTS programs)
    install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${program}>\")
        message(STATUS \"Not built, so not installed: ${program}\")
    endif()" ${install_how})
    install(TARGETS ${program} RUNTIME ${install_how} OPTIONAL)
endforeach()

# ---- find_package(gradus): gradus::gradus and gradus::gradus_static -----------------------------

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradus)
set(version_file ${PROJECT_BINARY_DIR}/gradus-config-version.cmake)

# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${version_file} COMPATIBILITY SameMinorVersion)
install(FILES ${version_file} DESTINATION ${package_dir} ${install_how})
install(EXPORT gradus NAMESPACE gradus:: FILE gradus-config.cmake DESTINATION ${package_dir}
        ${install_how})

# ---- pkg-config ---------------------------------------------------------------------------------

# Words for Libs and Libs.private, with quotes around paths that need them.
set(pc_libs "")
foreach(library IN LISTS gradus_link_public)
    string(APPEND pc_libs " -l${library}")
endforeach()
set(pc_libs_private "")
foreach(word IN LISTS gradus_link_words)
    if(word MATCHES "[^-A-Za-z0-9_./+=,:@%~]")
        set(word "\"${word}\"")
    endif()
    string(APPEND pc_libs_private " ${word}")
endforeach()
string(APPEND pc_libs_private "${pc_libs}")

cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE pc_libdir)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE
           pc_includedir)

# In two steps, since the prefix may be chosen as late as `cmake --install --prefix`.
set(pc_prefix "@pc_prefix@")
set(pc_file ${PROJECT_BINARY_DIR}/gradus.pc)
configure_file(cmake/gradus.pc.in ${pc_file}.in @ONLY)
# A # would begin a comment.
install(CODE "string(REPLACE [[#]] [[\\#]] pc_prefix \"\${CMAKE_INSTALL_PREFIX}\")
    configure_file([[${pc_file}.in]] [[${pc_file}]] @ONLY)" ${install_how})
install(FILES ${pc_file} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${install_how})
